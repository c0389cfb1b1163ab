"""Records a call of an optimizer, a scheduler or a gradient scaler that torch refused, and that ended the script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ...basics.torch_texts import (
    ARGUMENT_MISSING,
    GIVEN_TWICE,
    HALF_GRADIENTS,
    NO_FIRST_RATE,
    NO_LEAF,
    NO_PARAMETERS,
    NOTHING_UNSCALED,
    OTHER_GROUP,
    OTHER_GROUPS,
    SCHEDULE_OVER,
    SPARSE_GRADIENT,
    STEPPED_TWICE,
    UNSCALED_LATE,
    UNSCALED_TWICE,
)
from ...ops import info
from ...records import RefusedUpdate, Site
from ...source.definitions import use_of
from ...source.frames import variables
from ...source.tracebacks import chain
from ...torch_internals import private
from ...torch_internals.optimizers import is_code_of_updates, parameters_of, with_other_state
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: A part of the error -> the reason. The first that fits counts.
_REASONS = {
    OTHER_GROUPS: "groups",
    OTHER_GROUP: "groups",
    SPARSE_GRADIENT: "sparse",
    NO_PARAMETERS: "empty",
    NO_LEAF: "no-leaf",
    GIVEN_TWICE: "twice",
    NO_FIRST_RATE: "first-rate",
    UNSCALED_TWICE: "unscaled-twice",
    STEPPED_TWICE: "stepped-twice",
    UNSCALED_LATE: "unscaled-late",
    HALF_GRADIENTS: "half",
    NOTHING_UNSCALED: "nothing-unscaled",
}
#: The method of transformers' models that resizes parameters.
RESIZES = "resize_token_embeddings"
#: Maximum number of parameters that are named, and length of the text of an error.
MAX_NAMED, MAX_TEXT = 100, 1000


@dataclass
class _Call:
    """The refused call: the user's line, and the variables of torch's functions that it ran, the outermost first."""

    site: Site
    inner: list[dict[str, Any]]

    def of_class(self, kind: type[Any], *names: str) -> Any:
        """Return the first of these variables that is a `kind`; ``None`` if none is."""
        found = (one.get(name) for one in self.inner for name in names)
        return next((value for value in found if isinstance(value, kind)), None)


class RefusedUpdatesTracker(Tracker):
    """Tracker of the error that ended the script, if an optimizer, a scheduler or a gradient scaler raised it."""

    def __init__(self, context: TrackerContext) -> None:
        self._context, self._names = context, context.names
        #: The error that was examined last, and its record.
        self._known: tuple[BaseException, RefusedUpdate | None] | None = None

    def records(self) -> tuple[RefusedUpdate, ...]:
        """Return the record of the error that ended the script, if torch's code of updates raised it."""
        error = self._context.raised
        if error is None:
            return ()
        if self._known is None or self._known[0] is not error:
            with private.measuring():
                self._known = error, next(self._records(error), None)
        found = self._known[1]
        return () if found is None else (found,)

    def _records(self, error: BaseException) -> Iterator[RefusedUpdate]:
        """Yield a record for each error in the chain of `error` that an optimizer, a scheduler or a scaler raised."""
        for one in chain(error):
            if not isinstance(one, (RuntimeError, ValueError, TypeError, AssertionError, KeyError)):
                continue
            call, text = self._call(one), str(one)
            missing = ARGUMENT_MISSING.search(text) if isinstance(one, TypeError) else None
            if call is None or not (call.inner or (missing and _is_updater(text.split(".")[0]))):
                continue
            reason = missing[1] if missing else next((word for part, word in _REASONS.items() if part in text), "")
            yield self._record(call, text, reason)

    def _call(self, error: BaseException) -> _Call | None:
        """Return the user's last line in the traceback of `error`, and what it ran of torch's code of updates."""
        trace, inner = error.__traceback__, list[FrameType]()
        lines = list(self._names.frames.in_traceback(trace))
        if not lines:
            return None
        site, last = lines[-1]
        while trace is not None:
            inner = [] if trace.tb_frame is last else [*inner, trace.tb_frame]
            trace = trace.tb_next
        return _Call(site, [variables(frame) for frame in inner if is_code_of_updates(frame.f_code)])

    def _record(self, call: _Call, text: str, reason: str) -> RefusedUpdate:
        """Return the record of a refused call, with what torch's variables tell about its reason.

        :param text: the message of the error; `reason`: a word of ``_REASONS``, or empty.
        """
        owner = call.inner[0].get("self") if call.inner else None
        scheduler = call.of_class(LRScheduler, "self")
        optimizer = call.of_class(Optimizer, "self", "optimizer") or getattr(scheduler, "optimizer", None)
        if (over := SCHEDULE_OVER.search(text)) is not None:
            reason, owner, details = "over", scheduler, _Details(int(over[1]), int(over[2]))
        elif not reason and optimizer is not None:
            parameters, of_others = with_other_state(optimizer)
            details = _Details(parameters=parameters)
            reason = ("state" if of_others else "resized") if parameters else ""
        else:
            details = _DETAILS[reason](call, optimizer) if reason in _DETAILS and optimizer is not None else _Details()
        node = details.made.grad_fn if details.made is not None else None
        seen = self._context.steps.optimizers.get(id(optimizer)) if optimizer is not None else None
        return RefusedUpdate(
            reason,
            text[:MAX_TEXT],
            type(owner).__name__ if owner is not None else text.split(".")[0],
            type(optimizer).__name__ if optimizer is not None else "",
            self._context.steps.position[0],
            details.given,
            details.wanted,
            tuple(self._names.of(p) for p in details.parameters[:MAX_NAMED]),
            info(node.name()).name if node is not None else "",
            call.site,
            self._source(reason, node, call.site),
            self._names.frames.site(seen.spot) if seen is not None and seen.ref() is optimizer else None,
        )

    def _source(self, reason: str, node: torch.autograd.graph.Node | None, site: Site) -> Site | None:
        """Return the line that made the tensor of `node`, or a line that resizes parameters of a model."""
        if reason == "resized":
            return use_of(self._names.frames, RESIZES, site.file)
        return self._context.recorder.made_by_node(node) if node is not None else None


def _is_updater(name: str) -> bool:
    """Return whether a class of optimizers or schedulers of torch has this name."""
    return hasattr(torch.optim, name) or hasattr(torch.optim.lr_scheduler, name)


@dataclass
class _Details:
    """Details of a refused call, from the variables of torch's functions.

    :ivar given, wanted: two counts that must be equal and are not.
    :ivar parameters: the parameters that torch refused.
    :ivar made: the tensor that is no leaf.
    """

    given: int = 0
    wanted: int = 0
    parameters: list[Any] = field(default_factory=list)
    made: torch.Tensor | None = None


def _other_groups(call: _Call, optimizer: Optimizer) -> _Details:
    """Return how many parameters the loaded state dict has, and how many the optimizer."""
    state = call.of_class(dict, "state_dict") or {"param_groups": ()}
    return _Details(sum(len(group["params"]) for group in state["param_groups"]), len(parameters_of(optimizer)))


def _sparse(call: _Call, optimizer: Optimizer) -> _Details:
    """Return the parameters with a sparse gradient."""
    return _Details(parameters=[p for p in parameters_of(optimizer) if p.grad is not None and p.grad.is_sparse])


def _half(call: _Call, optimizer: Optimizer) -> _Details:
    """Return the parameters with a gradient in float16, and their number among all."""
    held = parameters_of(optimizer)
    half = [p for p in held if p.grad is not None and p.grad.dtype is torch.float16]
    return _Details(len(half), len(held), half)


def _new_parameters(call: _Call) -> list[Any]:
    """Return the parameters of the group that is being added to an optimizer."""
    return list((call.of_class(dict, "param_group") or {"params": ()})["params"])


def _in_two_groups(call: _Call, optimizer: Optimizer) -> _Details:
    """Return the parameters of the new group that another group of the optimizer has already."""
    held = {id(p) for p in parameters_of(optimizer)}
    return _Details(parameters=[p for p in _new_parameters(call) if id(p) in held])


def _no_leaf(call: _Call, optimizer: Optimizer) -> _Details:
    """Return the tensor of the new group that is no leaf."""
    return _Details(
        made=next((p for p in _new_parameters(call) if isinstance(p, torch.Tensor) and not p.is_leaf), None)
    )


#: Reason -> what the variables say.
_DETAILS = {
    "groups": _other_groups,
    "sparse": _sparse,
    "half": _half,
    "twice": _in_two_groups,
    "no-leaf": _no_leaf,
}
