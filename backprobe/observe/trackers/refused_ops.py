"""Records an operation of the forward that autograd refused, and that ended the script.

The traceback has the line that failed, also in a step that is not recorded. The line that made the tensor is observed
if the step is recorded, and otherwise inferred from the source.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
from torch import nn

from ...basics.torch_texts import (
    COPIES,
    CUSTOM_VIEW,
    FLAG_REFUSED,
    INFERENCE,
    INFERENCE_WRITTEN,
    LEAF_VIEW,
    LEAF_WRITTEN,
    NO_GRAD_VIEW,
    NOT_COPIED,
    OUT_REFUSED,
    SPLIT_NAME,
    SPLIT_VIEW,
)
from ...ops import info
from ...records import NoGradient, RefusedOp, Site
from ...source.assignments import assigned_in
from ...source.definitions import use_of
from ...source.frames import variables
from ...source.operands import made_at
from ...source.tracebacks import chain
from ...torch_internals import private
from ...torch_internals.structure import is_a, tensors_in
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: A part of the error -> the reason. The first that fits counts.
_REASONS = {
    SPLIT_VIEW: "split",
    LEAF_VIEW: "leaf view",
    LEAF_WRITTEN: "leaf",
    NO_GRAD_VIEW: "no-grad view",
    INFERENCE_WRITTEN: "inference",
    CUSTOM_VIEW: "custom view",
    OUT_REFUSED: "out",
    FLAG_REFUSED: "flag",
    NOT_COPIED: "copied",
}
#: Most tensors of an attribute among which a tensor is searched for.
MAX_HELD = 1000
#: Maximum number of views of views that are followed to the node that returned several.
MAX_VIEWS = 8


class RefusedOpsTracker(Tracker):
    """Tracker of the error that ended the script, if autograd raised it in the forward."""

    def __init__(self, context: TrackerContext) -> None:
        self._context, self._names = context, context.names
        #: Of the last refused op of a recorded step: the error, and the line that made the tensor.
        self._last: tuple[str, Site | None] = "", None
        #: The error that was examined last, and its record.
        self._known: tuple[BaseException, RefusedOp | NoGradient | None] | None = None

    def op_raised(self, text: str, frame: FrameType, args: Any) -> None:
        """Note the line that made the tensor of an op which autograd refused, in a recorded step."""
        if reason_of(text) in ("split", "custom view", "flag"):
            made = [line for value in args[:1] if (line := self._made(value)) is not None]
            self._last = text, made[0] if made else None

    def _made(self, value: object) -> Site | None:
        """Return the observed line that made a tensor, or the op that returned it as one of several views; ``None`` if
        unknown.
        """
        try:
            node = value.grad_fn if isinstance(value, torch.Tensor) else None
        except RuntimeError:  # autograd refuses to make the node of this view
            return None
        first = node
        for _ in range(MAX_VIEWS):
            if node is None or info(node.name()).gives_parts:
                break
            node = node.next_functions[0][0] if node.next_functions else None
        node = node or first
        return self._context.recorder.made_by_node(node) if node is not None else None

    def records(self) -> tuple[RefusedOp | NoGradient, ...]:
        """Return the record of the error that ended the script, if autograd raised it in the forward."""
        error = self._context.raised
        if error is None:
            return ()
        if self._known is None or self._known[0] is not error:
            with private.disable_function_modes():
                self._known = error, self._record(error)
        found = self._known[1]
        return () if found is None else (found,)

    def _record(self, error: BaseException) -> RefusedOp | NoGradient | None:
        """Return the record of the first error in the chain of `error` that autograd raised; ``None`` if there is
        none.
        """
        for one in chain(error):
            text = str(one) if isinstance(one, RuntimeError) else ""
            reason = reason_of(text)
            if reason or INFERENCE in text:
                running = list(self._names.frames.in_traceback(one.__traceback__))
                lines, step = [site for site, _ in running], self._context.steps.position[0]
                if not lines:
                    return None
                if not reason:
                    site = use_of(self._names.frames, "inference_mode", lines[-1].file)
                    return NoGradient("inference", site, lines[-1], self._module(running), "", step=step)
                if reason == "copied":
                    return self._copied(one, lines[-1])
                made, observed = self._maker(reason, text, lines)
                op = SPLIT_NAME.search(text)
                details = made, observed, step, self._module(running), op[1] if op and reason == "split" else ""
                return RefusedOp(reason, text[:1000], lines[-1], *details)
        return None

    def _copied(self, error: BaseException, site: Site) -> RefusedOp:
        """Return the record of a copy of a module, or of another object, that has a tensor with a graph."""
        tensor, trace = None, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_name == COPIES:
                tensor = variables(trace.tb_frame).get("self")
            trace = trace.tb_next
        module, attribute = self._names.attribute_with(
            lambda value: any(one is tensor for one in tensors_in(value, most=MAX_HELD))
        )
        node = tensor.grad_fn if isinstance(tensor, torch.Tensor) else None
        made = self._context.recorder.made_by_node(node) if node is not None else None
        inferred = assigned_in(self._names.frames, attribute) if made is None and attribute else None
        text, step = str(error)[:1000], self._context.steps.position[0]
        return RefusedOp("copied", text, site, made or inferred, made is not None, step, module, "", attribute)

    def _maker(self, reason: str, text: str, lines: list[Site]) -> tuple[Site | None, bool]:
        """Return the line that made the tensor, and whether it was observed."""
        if self._last[0] == text and self._last[1] is not None:
            return self._last[1], True
        if reason == "inference":
            return use_of(self._names.frames, "inference_mode", lines[-1].file), False
        return made_at(lines), False

    def _module(self, running: list[tuple[Site, FrameType]]) -> str:
        """Return the name of the innermost module whose method was running; empty if there is none."""
        modules = self._names.modules
        for _, frame in reversed(running):
            owner = variables(frame).get("self")
            found = modules.root_and_path(owner) if is_a(owner, nn.Module) else None
            if found is not None:
                return modules.full_name(*found)
        return ""


def reason_of(text: str) -> str:
    """Return why autograd refused an op with the error `text`; empty if it is another error."""
    return next((reason for part, reason in _REASONS.items() if part in text), "")
