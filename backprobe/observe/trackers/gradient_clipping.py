"""Checks that each call that clips gradients clips those that an optimizer uses next, at their true size."""

from __future__ import annotations

import math
import statistics
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import Any

import torch

from ... import thresholds
from ...records import Site, UselessClipping
from ...source.assignments import argument_assigned
from ...source.frames import CodeLocation, variables
from ...torch_internals import gradient_clipping, private
from ...torch_internals.async_scalars import capturing, fetch
from ...torch_internals.grad_scaler import is_unscaled, scaler_frame
from ...torch_internals.gradient_clipping import CallListener, ClipCall
from ...torch_internals.local import is_distributed, local
from ...torch_internals.norms import quick_norm
from ...torch_internals.optimizers import parameters_of
from ..schedule.seen_optimizers import SeenOptimizer
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of lines that clip, of parameters of one call, and of norms that are kept for a line.
MAX_LINES, MAX_PARAMETERS, MAX_NORMS = 50, 5000, 8
#: Maximum number of gradients of a ``DTensor`` whose local norm shows by how much a call scales: the largest one of
#: them is chosen.
MAX_CANDIDATES = 8
#: By id of a parameter, a reference to it and one to its gradient.
_References = dict[int, tuple[weakref.ref[Any], weakref.ref[Any] | None]]
_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients")


@dataclass
class _Call:
    """A call that clipped.

    :ivar reason: why it had no effect, if that is known; empty if it may have had one.
    :ivar grads: by id of each clipped parameter, a reference to it and one to its gradient.
    :ivar before: it was made before the running step of an optimizer.
    :ivar missed: an optimizer that stepped since, with gradients that were not clipped; ``norm``: their total norm.
    """

    line: _Line
    step: int
    reason: str
    grads: _References
    used: bool = False
    before: bool = False
    missed: SeenOptimizer | None = None
    norm: torch.Tensor | None = None


@dataclass
class _Line:
    """A line that clips.

    :ivar calls_without_effect: the number of latest calls in a row without effect, for the same ``reason``;
        ``longest_row_without_effect``: the largest such number before a call that had one; ``first``: the step of the
        first of them; ``stepped``: the line that steps ``optimizer``, with gradients that they should have clipped.
    :ivar scaled_calls: the number of latest calls in a row whose gradients had a scaler's factor, with samples of
        (norm, factor); ``first_scaled``: the step of the first.
    :ivar norms: samples of the norm of gradients that were not clipped.
    :ivar reductions: of the latest calls, norms before and after clipping: of all gradients, or of a part of one.
    :ivar clipped_optimizer: the optimizer that stepped last with gradients that the line had clipped.
    """

    spot: CodeLocation | None
    by_value: bool
    bound: float = 0.0
    calls: int = 0
    reason: str = ""
    calls_without_effect: int = 0
    longest_row_without_effect: int = 0
    first: int = 0
    optimizer: SeenOptimizer | None = None
    stepped: CodeLocation | None = None
    scaled_calls: int = 0
    first_scaled: int = 0
    scaled_optimizer: SeenOptimizer | None = None
    scales: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    norms: list[torch.Tensor] = field(default_factory=list)
    reductions: deque[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=lambda: deque(maxlen=MAX_NORMS))
    clipped_optimizer: SeenOptimizer | None = None
    last: _Call | None = None

    def note_effect(self) -> None:
        """Note that a call of the line had an effect: it ends the row of calls without one."""
        self.longest_row_without_effect = max(self.longest_row_without_effect, self.calls_without_effect)
        self.calls_without_effect = 0

    def note_no_effect(
        self, reason: str, call: _Call, optimizer: SeenOptimizer, stepped: CodeLocation | None = None
    ) -> None:
        """Count a call without effect; another `reason` than before begins a new row.

        :param optimizer: the optimizer whose gradients the call should have clipped.
        :param stepped: the line that steps it, if it is about to step.
        """
        if reason != self.reason:
            self.reason, self.calls_without_effect = reason, 0
            self.norms.clear()
        self.first = self.first if self.calls_without_effect else call.step
        self.calls_without_effect += 1
        self.optimizer, self.stepped = optimizer, stepped or self.stepped
        self.norms += [call.norm] if call.norm is not None else []


class GradientClippingTracker(Tracker):
    """Tracker that compares the gradients that calls clip with those that optimizers find in their next steps."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without lines; calls that clip are listened to while the session observes."""
        self._context = context
        self._lines: dict[CodeLocation | None, _Line] = {}
        #: Calls of the last steps that no optimizer has used yet.
        self._unused_calls: list[_Call] = []
        #: By id of an optimizer: the scaler that steps it.
        self._scalers: dict[int, weakref.ref[Any]] = {}
        #: Of some parameters that the last optimizer steps used, by id: references to parameter and gradient, and the
        #: version of the gradient.
        self._used_gradients: dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor], int]] = {}
        self._thread = threading.get_ident()
        self._listener: CallListener = self._clip_called
        self._observed_steps = context.observed_steps
        context.restorers.append(self.observing_pauses)

    def observing_begins(self) -> None:
        """Start listening to calls that clip gradients, and remember the thread: only its calls are checked."""
        self._thread = threading.get_ident()
        gradient_clipping.listen_to_calls(self._listener)

    def observing_pauses(self) -> None:
        """Stop listening to calls that clip gradients."""
        gradient_clipping.unlisten_to_calls(self._listener)

    # Calls that clip

    def _clip_called(self, call: ClipCall) -> Callable[[], None] | None:
        """Check a call that clips gradients, if this step and thread are observed. Errors do not reach the script.

        :returns: the function that notes its end, if that is needed.
        """
        if not self._is_checked() or threading.get_ident() != self._thread:
            return None
        try:
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                return self._note_call(call, sys._getframe(2))
        except Exception as error:
            self._context.events.fault(self, error)
            return None

    def _note_call(self, call: ClipCall, frame: FrameType) -> Callable[[], None] | None:
        """Note a call that clips, with the gradients that it clipped and a reason if it cannot have an effect.

        :param frame: the frame that made the call. Calls that only measure a norm, with a huge bound, are left out.
        :returns: the function that notes its end, if that is needed.
        """
        if not isinstance(call.bound, (int, float)) or not call.bound < thresholds.CLIPPING_MEASURING_BOUND:
            return None
        count = len(call.parameters) if call.parameters is not None else len(call.grads)
        spot = self._context.frames.spot(frame)
        line = self._lines.get(spot)
        if count > MAX_PARAMETERS or (line is None and len(self._lines) >= MAX_LINES):
            return None
        if line is None:
            line = self._lines[spot] = _Line(spot, call.total_norm is None)
        line.calls, line.bound = line.calls + 1, float(call.bound)
        parameters = call.parameters if call.parameters is not None else self._parameters_with(call.grads)
        if parameters is None:
            line.note_effect()
            return None
        with_grads = [p for p in parameters if isinstance(p, torch.Tensor) and p.grad is not None]
        refs: _References = {id(p): (private.tensor_ref(p), private.tensor_ref(p.grad)) for p in with_grads}
        if not refs:
            refs = {id(p): (private.tensor_ref(p), None) for p in parameters if _requires_grad(p)}
        self._evaluate_last_call(line)
        one = _Call(line, self._context.steps.index, self._reason_without_effect(call, parameters, with_grads), refs)
        if one.reason == "no-gradients" and not refs:  # frozen
            return None
        line.last = one
        self._unused_calls = [other for other in self._unused_calls if other.step >= one.step - 1]
        self._unused_calls.append(one)
        if with_grads:
            self._note_scale(line, call, with_grads)
        return self._note_reduction(line, call, with_grads) if with_grads and not one.reason else None

    def _note_reduction(
        self, line: _Line, call: ClipCall, with_grads: Sequence[torch.Tensor]
    ) -> Callable[[], None] | None:
        """Note the norms before and after clipping; those of a ``DTensor`` are known when the call ends.

        The total norm of the gradients of a ``DTensor`` is distributed over the ranks (Note [No own collectives]). But
        all are scaled by one factor, so the part of one that is here shows it.
        """
        total = call.total_norm
        if total is None or capturing():
            return None
        if private.is_readable(total):
            line.reductions.append((total.detach().clone(), total.detach().clamp(max=call.bound)))
            return None
        parts = [
            part for p in with_grads[:MAX_CANDIDATES] if is_distributed(p.grad) and _is_plain(part := local(p.grad))
        ]
        if not parts:
            return None
        part = max(parts, key=torch.Tensor.numel)
        before = quick_norm(part).float()

        def note_end() -> None:
            try:
                with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                    line.reductions.append((before, quick_norm(part).float()))
            except Exception as error:
                self._context.events.fault(self, error)

        return note_end

    def _parameters_with(self, grads: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor] | None:
        """Return the parameters of optimizers that have these gradients; ``None`` if not all are known."""
        numbers = {id(grad) for grad in grads}
        refs = (ref for one in self._context.steps.optimizers.values() for ref in one.refs.values())
        held = {id(p): p for ref in refs if (p := ref()) is not None and id(getattr(p, "grad", None)) in numbers}
        return list(held.values()) if len(held) == len(grads) else None

    def _reason_without_effect(
        self, call: ClipCall, parameters: Sequence[torch.Tensor], with_grads: Sequence[torch.Tensor]
    ) -> str:
        """Return why the call has no effect, as far as it can be known now; empty if it may have one."""
        if not parameters:
            return "empty"
        norm = call.total_norm
        if not with_grads or (norm is not None and private.is_readable(norm) and norm.is_cpu and not norm.item()):
            return "no-gradients"
        known = [(p, p.grad, self._used_gradients.get(id(p))) for p in with_grads]
        seen = [(grad, one) for p, grad, one in known if one is not None and one[0]() is p]
        unchanged = [grad._version == one[2] and one[1]() is grad for grad, one in seen]
        return "used" if seen and all(unchanged) else ""

    def _note_scale(self, line: _Line, call: ClipCall, with_grads: Sequence[object]) -> None:
        """Note whether the gradients still have the factor of the scaler that steps their optimizer."""
        for by, ref in self._scalers.items():
            scaler, optimizer = ref(), self._context.steps.optimizers.get(by)
            if scaler is None or optimizer is None or id(with_grads[0]) not in optimizer.refs:
                continue
            if is_unscaled(scaler, by) is not False:
                continue
            line.first_scaled = line.first_scaled if line.scaled_calls else self._context.steps.index
            line.scaled_calls += 1
            line.scaled_optimizer = optimizer
            norm = call.total_norm if call.total_norm is not None else _total_norm(call.grads)
            scale = scaler._scale
            if norm is not None and private.is_readable(norm) and scale is not None and len(line.scales) < MAX_NORMS:
                line.scales.append((norm.detach().clone(), scale.detach().clone()))
            return
        line.scaled_calls = 0
        line.scales.clear()

    def _evaluate_last_call(self, line: _Line) -> None:
        """Count the last call of a line as one without effect if only other optimizers hold its gradients."""
        last, line.last = line.last, None
        if last is None or last.used or last.missed is None or last.reason:
            return
        others = [o for o in self._context.steps.optimizers.values() if o is not last.missed]
        if _shares_no_parameter(last, last.missed) and any(not _shares_no_parameter(last, one) for one in others):
            line.note_no_effect("other", last, last.missed)

    # Events of optimizers

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Match the calls that clipped with the gradients that the optimizer is about to use."""
        if not self._is_checked():
            return
        self._find_scaler(optimizer)
        for call in self._unused_calls:
            call.before = True
        if self._unused_calls:
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                self._match_calls(optimizer)

    def _match_calls(self, optimizer: torch.optim.Optimizer) -> None:
        """Note which calls clipped gradients that `optimizer` is about to use, and which did not."""
        held = {id(p): p for p in parameters_of(optimizer)}
        grads = [p.grad for p in held.values() if isinstance(p, torch.Tensor) and p.grad is not None]
        if not grads:
            return
        clipped = False
        seen = self._context.steps.optimizers.get(id(optimizer))
        for call in self._unused_calls:
            if call.reason in ("", "used") and any(
                (p := held.get(number)) is not None and grad is not None and p.grad is grad() and param() is p
                for number, (param, grad) in call.grads.items()
            ):
                if call.reason:  # used before, and now again: they are not cleared
                    continue
                call.used = clipped = True
                call.line.note_effect()
                call.line.clipped_optimizer = seen
        for call in () if clipped or seen is None else self._unused_calls:
            reason = call.reason and self._reason_for_optimizer(call, held)
            if call.norm is None and len(call.line.norms) < MAX_NORMS:
                call.norm = _total_norm(grads)
            if reason:
                stepped = self._context.frames.spot(sys._getframe(1))
                call.line.note_no_effect(reason, call, seen, stepped)  # type: ignore[arg-type]
            else:
                call.missed = call.missed or seen
        self._unused_calls = [call for call in self._unused_calls if not (call.used or call.reason)]

    def _reason_for_optimizer(self, call: _Call, held: dict[int, torch.Tensor]) -> str:
        """Return why `call` had no effect on the gradients of an optimizer that holds these parameters, by id."""
        if call.reason == "empty":
            return call.reason
        mine = [held[number] for number, (ref, _) in call.grads.items() if number in held and ref() is held[number]]
        if mine:
            return call.reason if any(p.grad is not None for p in mine) else ""
        everyone = self._context.steps.optimizers.values()
        return (
            "other"
            if call.reason == "no-gradients" and all(_shares_no_parameter(call, one) for one in everyone)
            else ""
        )

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Match calls made inside the step by a closure, and remember some gradients that the step used."""
        if not self._is_checked():
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            held = parameters_of(optimizer)
            mine = {id(p): p.grad for p in held if isinstance(p, torch.Tensor) and p.grad is not None}
            for call in self._unused_calls:  # of a closure, which may have replaced the gradients afterwards
                if not (call.reason or call.before) and any(
                    grad is not None and mine.get(number) is grad() for number, (_, grad) in call.grads.items()
                ):
                    call.used = True
                    call.line.note_effect()
            self._unused_calls = [call for call in self._unused_calls if not call.used]
            if len(self._used_gradients) > MAX_PARAMETERS:
                self._used_gradients.clear()
            some = (p for p in held if isinstance(p, torch.Tensor) and p.grad is not None)
            for p in islice(some, MAX_NORMS):
                self._used_gradients[id(p)] = private.tensor_ref(p), private.tensor_ref(p.grad), p.grad._version

    def _find_scaler(self, optimizer: torch.optim.Optimizer) -> None:
        """Find the scaler that called the step of `optimizer`, in the frames above."""
        frame = scaler_frame(sys._getframe(1))
        scaler = variables(frame).get("self") if frame is not None else None
        if isinstance(scaler, torch.amp.GradScaler):
            self._scalers[id(optimizer)] = weakref.ref(scaler)

    def fast_path_ended(self, steps: int, seconds: float, between: bool) -> None:
        """Forget all unfinished calls and used gradients: what happened in fast-path steps is not known."""
        self._unused_calls.clear()
        self._used_gradients.clear()
        for line in self._lines.values():
            line.last = None

    def _is_checked(self) -> bool:
        """Return whether calls that clip are checked in the running step."""
        steps = self._context.steps
        return self._observed_steps.is_observed and not (steps.fast_path_left or steps.is_paused)

    # What is known

    def records(self) -> tuple[UselessClipping, ...]:
        """Return a record of each line whose calls clip in vain; none while a CUDA graph is captured, as norms are
        read.
        """
        if capturing():
            return ()
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            return tuple(self._find_records())

    def _find_records(self) -> Iterator[UselessClipping]:
        """Yield a record of each line that clips without effect, or whose bound ignores the scaler's factor."""
        for line in self._lines.values():
            if (
                line.calls_without_effect
                >= max(thresholds.CLIPPING_MIN_USELESS_CALLS, 2 * line.longest_row_without_effect + 1)
                and line.optimizer is not None
            ):
                norm = max((norm for norm in fetch(line.norms) if math.isfinite(norm)), default=None)
                if line.reason != "no-gradients" or norm is None or norm > 0:
                    yield self._record(line, line.reason, line.optimizer, line.first, norm, None)
            elif line.scaled_calls >= thresholds.CLIPPING_MIN_USELESS_CALLS and line.scaled_optimizer is not None:
                values = fetch([value for pair in line.scales for value in pair])
                pairs = list(zip(values[::2], values[1::2], strict=True))
                pairs = [(norm, scale) for norm, scale in pairs if math.isfinite(norm) and scale > 0]
                wrong = [pair for pair in pairs if _has_unscaled_bound(line, *pair)]
                if len(wrong) >= thresholds.CLIPPING_MIN_USELESS_CALLS and 4 * len(wrong) >= 3 * len(pairs):
                    norm = statistics.median(norm / scale for norm, scale in wrong)
                    scale = statistics.median(scale for _, scale in wrong)
                    yield self._record(line, "scaled", line.scaled_optimizer, line.first_scaled, norm, scale)
            elif len(line.reductions) >= thresholds.CLIPPING_MIN_USELESS_CALLS and line.clipped_optimizer is not None:
                norms = fetch([value for pair in line.reductions for value in pair])
                both = zip(norms[::2], norms[1::2], strict=True)
                shares = [after / before for before, after in both if 0 < before < math.inf]
                share = statistics.median(shares) if len(shares) >= thresholds.CLIPPING_MIN_USELESS_CALLS else 1.0
                if 0 < share < thresholds.CLIPPING_TINY_SHARE:
                    yield self._record(line, "tiny-bound", line.clipped_optimizer, 0, line.bound / share, None)

    def _record(
        self, line: _Line, reason: str, optimizer: SeenOptimizer, step: int, norm: float | None, scale: float | None
    ) -> UselessClipping:
        """Return the record of a line, with the line that assigned an empty argument if that is the reason.

        :param norm, scale: of the gradients that were not clipped: their norm, and the scaler's factor.
        """
        frames = self._context.frames
        clipped = frames.site(line.spot)
        given: Site | None = None
        if clipped is not None and reason in ("empty", "other"):
            given = argument_assigned(clipped, _CLIPS)
        calls = {"scaled": line.scaled_calls, "tiny-bound": line.calls}.get(reason, line.calls_without_effect)
        found = reason, line.by_value, optimizer.name, step, calls, line.bound, norm, scale
        stepped = frames.site(line.stepped) if optimizer is line.optimizer else None
        return UselessClipping(*found, clipped, given, frames.site(optimizer.spot), stepped)


def _has_unscaled_bound(line: _Line, norm: float, scale: float) -> bool:
    """Return whether the bound was meant for gradients without the factor `scale`, which `norm` includes."""
    remains = line.bound < thresholds.CLIPPING_MAX_REMAINING_SHARE * norm
    return (
        remains
        and scale >= thresholds.CLIPPING_MIN_SCALE
        and line.bound <= thresholds.CLIPPING_MAX_BOUND_OF_SCALE * scale
    )


def _shares_no_parameter(call: _Call, optimizer: SeenOptimizer) -> bool:
    """Return whether an optimizer holds none of the parameters of a call."""
    return not any(optimizer.refs.get(number) is ref for number, (ref, _) in call.grads.items())


def _requires_grad(parameter: object) -> bool:
    """Return whether `parameter` is a tensor that requires a gradient."""
    return isinstance(parameter, torch.Tensor) and parameter.requires_grad


def _is_plain(part: object) -> bool:
    return isinstance(part, torch.Tensor) and private.is_readable(part) and part.numel() > 0


def _total_norm(grads: Iterable[Any]) -> torch.Tensor | None:
    """Return the norm of all `grads`, on their device; ``None`` if one of them cannot be read, or devices differ."""
    tensors = list(grads)
    plain = all(map(private.is_readable, tensors)) and len({one.device for one in tensors}) == 1
    if not plain or (tensors[0].is_cuda and capturing()):
        return None
    return quick_norm(torch.stack([quick_norm(one.detach()).float() for one in tensors]))
