"""Measures the gradients that backward calls leave in ``.grad`` before an optimizer steps, in measured steps.

Note [Gradients between backward and step]: the tracker intercepts calls of the autograd engine
(Note [In place of the engine's function]), innermost of all listeners, so that other listeners see the calls unchanged.
After a call that gave gradients to an optimizer's parameters, it measures their total norm. If the script clips the
gradients, the optimizer later sees another norm. The comparison is impossible in three cases: a ``GradScaler`` is known
but the loss was not seen to be multiplied by it; the first step, in which no scaler is known yet; and an optimizer that
calls a closure.

Note [Detecting clipping]: the total norm costs another pass over all gradients. A script that clips usually writes to
the gradients in every step; other scripts never do. So after ``MIN_UNCLIPPED_MEASUREMENTS`` measurements in which
nothing was written between the backward and the optimizer's step, and the two norms were bitwise equal, only one
measurement in four takes the norm, until a write occurs. In the other measurements no engine call is intercepted,
unless the script accumulates gradients.

Calls count as micro batches of one accumulated step if each was made at the same place, without ``retain_graph``, from
a graph that was built after the previous call, and if gradients were left unchanged between the calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from types import FrameType
from typing import Any

import torch

from ...torch_internals import engine_calls, private
from ...torch_internals.entry_points import as_list, node_of
from ...torch_internals.optimizers import parameters_of
from ...torch_internals.references import IdentityMap
from ...torch_internals.uncompiled import dynamo_passthrough
from .noise import MicroBatches
from .numbers import is_measurable, norms

#: Measurements without clipping after which the script is assumed not to clip, and the interval, in measurements, at
#: which this is then checked again.
MIN_UNCLIPPED_MEASUREMENTS, RECHECK_INTERVAL = 3, 4
#: Parameters with their parameter groups, by (device, dtype of the parameter, dtype of the gradient).
Groups = dict[Any, list[tuple[Any, Any]]]
#: State of a parameter's gradient: a reference to the gradient and its version counter; ``None`` without a gradient.
Mark = tuple[Any, int] | None


def measurable_groups(optimizer: torch.optim.Optimizer) -> Groups:
    """Group the optimizer's parameters that have a measurable gradient by device and dtypes."""
    found: Groups = {}
    is_unreadable: dict[object, bool] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            grad = getattr(p, "grad", None)
            if grad is None or not private.is_plain(p) or not private.is_plain(grad):
                continue
            device = p.device
            if is_unreadable.get(device) is None:
                is_unreadable[device] = private.is_unsafe_to_read(p)
            if is_unreadable[device]:
                continue
            if is_measurable(p) and is_measurable(grad) and not (private.is_freed(p) or private.is_freed(grad)):
                found.setdefault((device, p.dtype, grad.dtype), []).append((p, group))
    return found


def concatenated_norm(lengths: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the norm of the concatenation of vectors whose norms are given, on the device of the first."""
    norms_of_parts = list(lengths)
    return torch.cat([length.float().to(norms_of_parts[0].device) for length in norms_of_parts]).norm()


class InterceptionPolicy:
    """Decides whether backward calls that give one optimizer gradients are intercepted: Note [Detecting clipping].

    `turn`: how many times the optimizer was measured before.
    """

    def __init__(self) -> None:
        self._unclipped_count, self._accumulates = 0, False

    def measures_norm(self, turn: int) -> bool:
        """Return whether this measurement takes the norm after the backward, to detect clipping."""
        return self._unclipped_count < MIN_UNCLIPPED_MEASUREMENTS or turn % RECHECK_INTERVAL == 0

    def intercepts(self, turn: int) -> bool:
        """Return whether backward calls are intercepted for this measurement."""
        return self._accumulates or self.measures_norm(turn)

    def record_calls(self, calls: int, touched: bool) -> None:
        """Record that `calls` backward calls gave the optimizer gradients.

        :param touched: the gradients were written to or replaced before the optimizer's step, as far as version
            counters show.
        """
        self._accumulates = calls > 1
        self._unclipped_count = 0 if touched else self._unclipped_count + 1

    def note_clip_factor(self, factor: float) -> None:
        """Assume that the script clips, if the norm at the optimizer's step differs from that after the backward.

        :param factor: the norm at the step, divided by that after the backward.
        """
        if factor != 1.0:  # detects writes that change no version counter as well, such as ``p.grad.data.clamp_()``
            self._unclipped_count = 0


class AccumulationState:
    """State of the backward calls that gave one optimizer gradients since its last step."""

    def __init__(self, micro_batches: MicroBatches, measures_norm: bool) -> None:
        """Start before the first call. `measures_norm`: the norm after each call is measured, to detect clipping."""
        #: The total norm of the optimizer's gradients after the last call, ``None`` if unknown; and whether it is
        #: measured.
        self.grad_norm: torch.Tensor | None = None
        self.measures_norm = measures_norm
        #: The factor by which a ``GradScaler`` multiplied the last loss.
        self.scale: torch.Tensor | None = None
        self.micro_batches = micro_batches
        #: The state of the gradients after the last call, the line of the call, and the next sequence number then.
        self._marks_after_call: list[Mark] | None = None
        self._call_line, self._next_seq = None, 0

    def call_begins(self, before: list[Mark], place: Any, oldest_seq: int, retains_graph: bool) -> None:
        """Record that a backward call is about to be made.

        :param before: state of the gradients before the call.
        :param place: the line of the call.
        :param oldest_seq: the lowest sequence number among the nodes of the call's roots.
        :param retains_graph: the call was made with ``retain_graph``.
        """
        self.micro_batches.invalid = self.micro_batches.invalid or retains_graph
        if self._marks_after_call is None or not are_equal_marks(self._marks_after_call, before):
            self.micro_batches.restart(not any(before))
            self._call_line = place
            return
        if place != self._call_line or oldest_seq < self._next_seq:
            self.micro_batches.invalid = True
        self.micro_batches.call_begins()

    def call_returned(self, after: list[Mark], is_scale_known: bool) -> None:
        """Record that the call returned and gave the optimizer gradients.

        :param is_scale_known: the loss scale is known.
        """
        self.micro_batches.invalid = self.micro_batches.invalid or not is_scale_known
        self.micro_batches.call_returned()
        self._marks_after_call, self._next_seq = after, private.next_sequence_nr()

    def is_touched(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether gradients changed since the last call, as far as version counters show."""
        return self._marks_after_call is None or not are_equal_marks(self._marks_after_call, gradient_marks(optimizer))


class AccumulatedGradients:
    """Interceptor of calls of the autograd engine.

    :param due: returns the optimizers that are measured at their next step: (optimizer, number of its measurements so
        far, whether the norm after the backward is measured).
    :param place: returns the script's code location at or above a frame.
    :param scale: returns the factor by which the roots of a call were multiplied, ``None`` for none, and whether that
        is certain.
    :param fault: receives exceptions of backprobe's own code.
    :param clock: returns a timestamp when measuring begins; ``took`` receives this timestamp when it ends.
    """

    def __init__(
        self,
        due: Callable[[], list[tuple[torch.optim.Optimizer, int, bool]]],
        place: Callable[[FrameType], object],
        scale: Callable[[Sequence[object]], tuple[torch.Tensor | None, bool]],
        fault: Callable[[Exception], None],
        clock: Callable[[], Any],
        took: Callable[[Any], None],
    ) -> None:
        """Prepare for the current thread; ``attach`` begins."""
        self._code_location = place
        self._optimizers_to_measure, self._scale, self._fault, self._clock, self._on_measured = (
            due,
            scale,
            fault,
            clock,
            took,
        )
        self._thread = get_ident()
        self._states: IdentityMap[AccumulationState] = IdentityMap()

    def attach(self) -> None:
        """Begin to intercept engine calls of this thread, innermost of all listeners."""
        self._thread = get_ident()
        engine_calls.listen(self, inside=True)

    def detach(self) -> None:
        """Stop intercepting engine calls, and forget the calls so far."""
        engine_calls.unlisten(self)
        self._states.clear()

    def pop_state(self, optimizer: torch.optim.Optimizer) -> AccumulationState | None:
        """Return and forget the state of the backward calls for `optimizer`, which is about to step."""
        return self._states.pop(optimizer)

    @dynamo_passthrough
    def __call__(self, engine: Callable[..., object], roots: object, *args: object, **kwargs: object) -> object:
        """Make a call of the autograd engine, and note before and after it what it does to gradients of measured
        optimizers.
        """
        adds = kwargs.get("accumulate_grad") and get_ident() == self._thread and not private.compiling()
        pending = self._safely(self._before_call, roots, args, sys._getframe(1)) if adds else None
        try:
            result = engine(roots, *args, **kwargs)
        except BaseException:
            if pending:
                self._states.clear()
            raise
        if pending:
            self._safely(self._after_call, pending)
        return result

    def _safely(self, function: Callable[..., object], *arguments: object) -> object:
        """Call `function` unseen by modes of the user, and return its result; ``None`` inside another call, or if it
        raised.
        """
        if private.graph_task() != -1:  # a nested call
            return None
        mark = self._clock()
        try:
            with private.measuring():
                return function(*arguments)
        except Exception as error:
            self._states.clear()
            self._fault(error)
        finally:
            self._on_measured(mark)
        return None

    def _before_call(self, roots: Any, args: Any, frame: FrameType) -> Any:
        """Prepare for a backward call.

        :returns: the measured optimizers with the states of their gradients, and the loss scale; ``None`` if there are
            none.
        """
        optimizers = self._optimizers_to_measure()
        if not optimizers or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return None
        nodes = [node_of(root) for root in as_list(roots)]
        oldest_seq = min((node._sequence_nr() for node in nodes if node is not None), default=0)
        retains_graph = bool(args[1])  # retain_graph
        pending, place = [], self._code_location(frame)
        for optimizer, turn, measures in optimizers:
            state = self._states.get(optimizer)
            if state is None:
                state = self._states[optimizer] = AccumulationState(MicroBatches(optimizer, turn), measures)
            before = gradient_marks(optimizer)
            state.call_begins(before, place, oldest_seq, retains_graph)
            pending.append((optimizer, state, before))
        return pending, self._scale(roots)

    def _after_call(self, pending: Any) -> None:
        """Note which optimizers a call gave gradients, and measure their total norm where clipping is to be detected.

        :param pending: what ``_before_call`` returned.
        """
        optimizers, (scale, is_scale_known) = pending
        for optimizer, state, before in optimizers:
            after = gradient_marks(optimizer)
            if are_equal_marks(before, after):
                continue  # this backward call gave the optimizer no gradients
            state.call_returned(after, is_scale_known)
            state.grad_norm, state.scale = None, scale
            if is_scale_known and state.measures_norm and (groups := measurable_groups(optimizer)):
                grad_norm = concatenated_norm(
                    torch.stack(norms([p.grad.detach() for p, _ in members])) for members in groups.values()
                )
                state.grad_norm = grad_norm if scale is None else grad_norm / scale.to(grad_norm.device)


def gradient_marks(optimizer: torch.optim.Optimizer) -> list[Mark]:
    """Return the state of every gradient of `optimizer`: any in-place write or replacement changes it."""
    grads = [p.grad if private.is_plain(p) else None for p in parameters_of(optimizer)]
    return [None if grad is None else (private.tensor_ref(grad), grad._version) for grad in grads]


def are_equal_marks(one: list[Mark], other: list[Mark]) -> bool:
    """Return whether two lists of gradient states are equal: the same gradients with the same version counters."""
    return len(one) == len(other) and all(
        a is b if a is None or b is None else a[1] == b[1] and a[0]() is b[0]() for a, b in zip(one, other, strict=True)
    )
