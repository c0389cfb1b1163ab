"""Detects modules with a method ``backward`` that should change the gradient, and that nothing calls."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType, FunctionType
from typing import TYPE_CHECKING

import torch
from torch import nn

from ... import thresholds
from ...records import ModuleBackward, Site
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation
from ...source.module_backward import Caller, gradient_method, is_encountered, possible_calls, source_of
from ...source.new_lines import has_run
from ...source.roots import ModuleCallRef
from ...torch_internals import private
from ...torch_internals.sharding import plain_class
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    from ..backward.active_backward import ActiveBackward

#: The maximum number of classes that are examined, of modules of a model that are searched, and of names in a record.
MAX_CLASSES, MAX_MODULES, MAX_NAMES = 1000, 10_000, 20


@dataclass
class _Class:
    """A class of modules that has such a method: the modules that were called, and a place that calls one."""

    kind: type
    method: FunctionType
    step: int = 0
    names: list[str] = field(default_factory=list)
    spot: CodeLocation | None = None


class ModuleBackwards(Tracker):
    """Tracker of classes of modules whose method ``backward`` takes a gradient, and that run with gradients enabled."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        #: By class: its ``backward``, and what was seen of it; ``None`` if the class does not define one.
        self._classes: dict[type, _Class | None] = {}
        self._last_step = -1

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Search the models for such classes when a backward call begins."""
        self._search()

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Search the models for such classes when an optimizer is about to step."""
        self._search()

    def root_found(self) -> None:
        """Note a new outermost module if its class has such a method."""
        root = self._context.modules.roots[-1]
        model = root.ref()
        if model is not None and torch.is_grad_enabled():
            self._note(model, "", None)  # its call begins; it may be gone when the backward begins

    def unregistered_module_called(self, module: nn.Module, parent: ModuleCallRef, spot: CodeLocation | None) -> None:
        """Note a called module that belongs to no outermost one, if its class has such a method."""
        if torch.is_grad_enabled():
            self._note(module, "", spot)

    def _search(self) -> None:
        """Search all models for called modules whose class defines a method that computes a gradient; in steps 1, 2, 4,
        8, ….
        """
        step = self._context.steps.index
        if step & (step - 1) or step == self._last_step:
            return
        self._last_step = step
        modules = self._context.modules
        with private.measuring():
            for root, model in modules.models():
                for module in islice(model.modules(), MAX_MODULES):
                    path = root.path_of(module)
                    if path is not None and self._of(type(module)) and modules.counts(weakref.ref(module))[0]:
                        self._note(module, modules.full_name(root, path), modules.called_at(module))

    def _of(self, kind: type) -> _Class | None:
        """Return the state of a class of modules; ``None`` if the class has no method that computes a gradient."""
        if kind not in self._classes and len(self._classes) < MAX_CLASSES:
            method = gradient_method(plain_class(kind), self._context.frames) if hasattr(kind, "backward") else None
            known = _Class(plain_class(kind), method) if method is not None else None
            self._classes[kind] = known
        return self._classes.get(kind)

    def _note(self, module: nn.Module, name: str, spot: CodeLocation | None) -> None:
        """Note that a module of a class with such a method was called at `spot`; its name may be empty."""
        known = self._of(type(module))
        if known is not None:
            if not known.names:
                known.step = self._context.steps.index
            known.spot = known.spot or spot
            if name not in known.names and len(known.names) < MAX_NAMES:
                known.names.append(name)

    def records(self) -> Iterator[ModuleBackward]:
        """Yield a record of each class whose method ``backward`` nothing calls."""
        for one in self._classes.values():
            if one is not None and one.names and (found := self._record(one)) is not None:
                yield found

    def _record(self, one: _Class) -> ModuleBackward | None:
        """Return the record of a class whose method nothing called; ``None`` if something may have called it."""
        frames, steps = self._context.frames, self._context.steps.index
        ran, calls = has_run(one.method.__code__), list(possible_calls(frames, one.kind, one.method))
        # The lines of unknown objects have run, and the method has not: they call other methods of this name.
        if ran or any(call.caller is Caller.INSTANCE for call in calls):
            return None
        if calls and (ran is None or steps < thresholds.MODULE_BACKWARD_MIN_STEPS):
            return None
        if not all(is_encountered(frames, call.site.file, call.function) for call in calls):
            return None
        code = one.method.__code__
        index, scope = source_of(one.method)
        line = Site(code.co_filename, code.co_firstlineno, code.co_name)
        if scope is not None:
            line = index.site_at(scope.node.lineno, scope)  # type: ignore[attr-defined]
        names = tuple(name for name in one.names if name) or tuple(one.names)
        return ModuleBackward(
            names,
            one.kind.__name__,
            one.step,
            steps,
            line,
            frames.site(one.spot) or self._line_of_call(names),
            _lines_of_forward(one.kind, code.co_filename),
            is_certain=ran is False and not calls and steps >= thresholds.MODULE_BACKWARD_MIN_STEPS,
            possible=tuple(call.site for call in calls),
        )

    def _line_of_call(self, names: tuple[str, ...]) -> Site | None:
        """Return the line that calls an attribute of the name of one of these modules, if there is one such line."""
        attributes = {name.rpartition(".")[2] for name in names}
        found = {call.site for one in attributes if one for call in calls_of_method(self._context.frames, one)}
        return found.pop() if len(found) == 1 else None


def _lines_of_forward(kind: type, file: str) -> tuple[int, int]:
    """Return the first and the last line of the forward of a class, if it is in this file; otherwise zeros."""
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    if code is None or code.co_filename != file:
        return (0, 0)
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_firstlineno, max(lines, default=code.co_firstlineno)
