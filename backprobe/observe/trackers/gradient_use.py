"""Checks that each optimizer uses the gradients of backward calls, and uses them once."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch

from ... import thresholds
from ...records import GradientUse, Site
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation
from ...source.sites import is_before
from ...torch_internals import private
from ...torch_internals.async_scalars import fetch
from ...torch_internals.optimizers import parameters_of
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..ledger.account import may_be_nonzero
from ..schedule.seen_optimizers import SeenOptimizer
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of tensors per optimizer whose gradients are kept from one step to the next.
MAX_TENSORS_PER_OPTIMIZER = 2
#: Maximum number of elements of one of these tensors.
MAX_KEPT_ELEMENTS = 65536
#: Maximum number of optimizers that are checked.
MAX_OPTIMIZERS = 20


@dataclass
class _UsedGradient:
    """The gradient of one tensor that an optimizer used, with a copy of its values."""

    tensor: weakref.ref[torch.Tensor]
    ref: Callable[[], torch.Tensor | None]
    grad: torch.Tensor
    version: int


@dataclass
class _OptimizerState:
    """State of an optimizer.

    :ivar refs: references to the tensors that it holds, by id; ``seen``: its own record, once it has stepped.
    :ivar used: gradients that its last step used, without those that have been cleared since.
    :ivar unchanged_calls: number of backward calls since then that found some of them unchanged; ``reuse_spot``: the
    line of the first.
    :ivar backward_spot: the line of a backward call since then that gave nonzero gradients to its tensors.
    :ivar reusing_steps: number of steps in a row that used gradients of the step before; ``first``: the first of these
    steps.
    :ivar calls_before_step: ``unchanged_calls`` when the optimizer's step began: later calls are made by a closure.
        ``began_without_gradients``: no gradients had been given then, so later ones come from a closure, and the
        optimizer may clear them itself after using them.
    :ivar cleared_steps: number of checked steps in a row that found no gradients although some had been given;
        ``since``: the first of them, if an earlier step found some; ``had_gradients``: a step found some;
        ``longest_cleared_row``: the largest value of ``cleared_steps`` before a step that found some.
    """

    name: str
    ref: Callable[[], torch.optim.Optimizer | None]
    refs: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)
    seen: SeenOptimizer | None = None
    used: list[_UsedGradient] = field(default_factory=list)
    unchanged_calls: int = 0
    reuse_spot: CodeLocation | None = None
    backward_spot: CodeLocation | None = None
    reusing_steps: int = 0
    first: int = 0
    calls_before_step: int = 0
    began_without_gradients: bool = False
    cleared_steps: int = 0
    since: int = 0
    had_gradients: bool = False
    longest_cleared_row: int = 0
    stepped: CodeLocation | None = None
    backward: CodeLocation | None = None

    @property
    def how(self) -> str:
        """Return the kind of record to make: ``again``, ``cleared``, or empty for none."""
        if self.reusing_steps >= thresholds.REUSED_GRADIENT_MIN_STEPS:
            return "again"
        return (
            "cleared"
            if self.cleared_steps >= max(thresholds.CLEARED_GRADIENT_MIN_STEPS, 2 * self.longest_cleared_row + 1)
            else ""
        )


class GradientUseTracker(Tracker):
    """Tracker that compares the gradients an optimizer finds in ``.grad`` with those that backward calls left there."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without optimizers."""
        self._context = context
        self._states: dict[int, _OptimizerState] = {}
        #: The states with a record to make of freed optimizers whose id a later one has.
        self._freed_states: list[_OptimizerState] = []
        #: Until an optimizer steps: the number of backward calls, the line of the last one, and a reached tensor with a
        #: copy of its values.
        self._calls_before_step = 0
        self._last_backward_spot: CodeLocation | None = None
        self._smallest_leaf: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None
        self._observed_steps = context.observed_steps

    # Events of backward calls

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Check which used gradients are still there, before an outermost recorded call that accumulates gradients."""
        if running.inside is None and running.kind != "autograd.grad":
            self._note_backward(running.spot)

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Check which used gradients are still there, before a call that is not recorded."""
        self._note_backward(spot)
        self._calls_before_step += 1

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """Forget the gradients that optimizers used: it is unknown what was cleared in fast-path steps."""
        self._calls_before_step += count
        for state in self._states.values():
            state.used, state.backward_spot = [], None

    def _note_backward(self, spot: CodeLocation | None) -> None:
        """Keep, of the gradients that optimizers used, those that are still unchanged when a backward call at `spot`
        begins.

        In later calls of the same step, those that are not zero: the call before has added to them.
        """
        for state in self._states.values():
            if not state.used:
                continue
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                state.used = _filter_by(state.used, _is_nonzero if state.unchanged_calls else _is_unchanged)
            state.reuse_spot = state.reuse_spot if state.unchanged_calls else spot
            state.unchanged_calls += 1

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note which optimizers a recorded call gave gradients to.

        Until a step, keep a copy of a leaf to see whether it moves.
        """
        if running.inside is not None or recorded.raised is not None or running.kind == "autograd.grad":
            return
        self._calls_before_step += 1
        for state in self._states.values():
            if state.backward_spot is None and self._observed_steps.is_observed:
                leaves = (leaf for _, leaf in running.graph.leaves)
                mine = [leaf.grad for leaf in leaves if private.tensor_ref(leaf) is state.refs.get(id(leaf))]
                with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                    state.backward_spot = running.spot if _any_may_be_nonzero(mine) else None
        if not self._context.steps.has_ever_stepped:
            self._last_backward_spot = running.spot
            if self._smallest_leaf is None:
                self._copy_smallest_leaf(running)

    def sentinel_call_ended(self, spot: CodeLocation | None) -> None:
        """Record which optimizers have gradients after a backward call whose nodes are not recorded."""
        for state in self._states.values():
            seen = state.seen
            if state.backward_spot is None and seen is not None and self._observed_steps.is_observed:
                with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                    some = _any_may_be_nonzero(getattr(ref(), "grad", None) for ref in seen.refs.values())
                    state.backward_spot = spot if some else None

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note which optimizers have gradients after a call whose forward was not recorded."""
        if running.kind != "autograd.grad":
            self.sentinel_call_ended(running.spot)

    def _copy_smallest_leaf(self, running: ActiveBackward) -> None:
        """Copy the smallest leaf that a call reached, to see later whether other code changes the weights."""
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            leaf = min((v for _, v in running.graph.leaves if _is_readable(v)), key=torch.Tensor.numel, default=None)
            if leaf is not None:
                self._smallest_leaf = private.tensor_ref(leaf), leaf.detach().clone()

    # Events of optimizers

    def optimizer_begins(self, optimizer: object) -> None:
        """Check whether an optimizer that is about to step has gradients, and whether it used some of them before."""
        self._smallest_leaf = None
        state = self._states.get(id(optimizer))
        if state is None or state.ref() is not optimizer:
            if len(self._states) + len(self._freed_states) >= MAX_OPTIMIZERS and (state is None or state.how):
                return
            if state is not None and state.how:
                self._freed_states.append(state)
            state = self._states[id(optimizer)] = _OptimizerState(type(optimizer).__name__, weakref.ref(optimizer))
            self._observed_steps.optimizer_found(optimizer)
        state.calls_before_step, state.began_without_gradients = state.unchanged_calls, state.backward_spot is None
        if not self._observed_steps.is_observed:
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._check_gradients(state, optimizer)
            if state.unchanged_calls:
                self._check_reuse(state)

    def _check_gradients(self, state: _OptimizerState, optimizer: torch.optim.Optimizer) -> None:
        """Count a step that finds no gradients although a backward call has given some since the last step."""
        tensors = parameters_of(optimizer)
        if state.backward_spot is not None:
            if _any_may_be_nonzero(p.grad for p in tensors):
                state.longest_cleared_row = max(state.longest_cleared_row, state.cleared_steps)
                state.had_gradients, state.cleared_steps = True, 0
            elif (state.had_gradients or not state.began_without_gradients) and not any(
                other is not state and other.had_gradients and _share_parameter(other.refs, state.refs)
                for other in self._states.values()
            ):
                state.since = (
                    state.since if state.cleared_steps or not state.had_gradients else self._context.steps.index
                )
                state.cleared_steps += 1
                state.backward, state.stepped = state.backward_spot, self._context.frames.spot(sys._getframe())

    def _check_reuse(self, state: _OptimizerState) -> None:
        """Count a step whose gradients were added to those that the last step had used."""
        added = (
            [one for one in state.used if _was_accumulated(one)]
            if state.reusing_steps < thresholds.REUSED_GRADIENT_MIN_STEPS
            else []
        )
        some = _filter_by(added, _is_nonzero)
        still = {id(one) for one in _filter_by(some, _is_unchanged)}
        if any(id(one) not in still for one in some):
            state.first = state.first if state.reusing_steps else self._context.steps.index
            state.reusing_steps += 1
            state.backward, state.stepped = state.reuse_spot, self._context.frames.spot(sys._getframe())
        elif state.reusing_steps < thresholds.REUSED_GRADIENT_MIN_STEPS:
            state.reusing_steps = 0

    def optimizer_ended(self, optimizer: object) -> None:
        """Check the gradients that a closure gave, and copy some of those that the step used."""
        state = self._states.get(id(optimizer))
        if state is None or state.ref() is not optimizer:
            return
        state.seen = self._context.steps.optimizers.get(id(optimizer))
        if self._observed_steps.is_observed:
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                if state.began_without_gradients and state.backward_spot is not None:
                    self._check_gradients(state, optimizer)
                if state.unchanged_calls > state.calls_before_step:
                    self._check_reuse(state)
        state.unchanged_calls, state.backward_spot, state.used = 0, None, []
        if not self._observed_steps.is_observed or state.reusing_steps >= thresholds.REUSED_GRADIENT_MIN_STEPS:
            return
        tensors = parameters_of(optimizer)
        state.refs = {id(p): private.tensor_ref(p) for p in tensors}
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            for p in islice(
                sorted(filter(_has_readable_gradient, tensors), key=torch.Tensor.numel), MAX_TENSORS_PER_OPTIMIZER
            ):
                refs = private.tensor_ref(p), private.tensor_ref(p.grad)
                state.used.append(_UsedGradient(*refs, p.grad.detach().clone(), p.grad._version))

    def records(self) -> tuple[GradientUse, ...]:
        """Return a record of each optimizer that uses gradients again, finds them cleared, or never steps."""
        site, found = self._context.frames.site, []
        for state in (*self._freed_states, *self._states.values()):
            how = state.how
            if how:
                made = site(state.seen.spot) if state.seen is not None else None
                stepped, backward = site(state.stepped), site(state.backward)
                clears = self._clears(backward, stepped) if how == "cleared" else None
                first = state.first if how == "again" else state.since
                details = state.name, how, first, stepped, backward, clears, made
                found.append(GradientUse(*details))
        return (*found, *self._unused_records())

    def _clears(self, backward: Site | None, stepped: Site | None) -> Site | None:
        """Return the only line that calls ``zero_grad`` and can have cleared the gradients between the two lines.

        A call in the same function before `backward` or after `stepped` clears gradients that are no longer needed, so
        it is excluded. If several lines are left, return the only one that stands between the two lines in one of their
        functions.
        """
        lines = {line for line, *_ in calls_of_method(self._context.frames, "zero_grad")}
        if len(lines) > 1 and backward is not None and stepped is not None:
            lines = {line for line in lines if not (is_before(line, backward) or is_before(stepped, line))}
            if len(lines) > 1:
                lines = {line for line in lines if is_before(backward, line) or is_before(line, stepped)}
        return lines.pop() if len(lines) == 1 else None

    def _unused_records(self) -> list[GradientUse]:
        """Return records of optimizers that never stepped.

        Only if the script ended without an error and no other code changed the weights.
        """
        steps = self._context.steps
        if (
            steps.has_ever_stepped
            or self._calls_before_step < thresholds.UNUSED_GRADIENT_MIN_CALLS
            or self._smallest_leaf is None
            or self._context.raised is not None
        ):
            return []
        tensor = self._smallest_leaf[0]()
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            if tensor is None or not _is_readable(tensor) or not torch.equal(tensor.detach(), self._smallest_leaf[1]):
                return []
        site, found = self._context.frames.site, []
        for seen in steps.optimizers.values():
            optimizer = seen.ref()
            groups = optimizer.param_groups if optimizer is not None else ()
            if any(p is tensor for group in groups for p in group["params"]):
                found.append(
                    GradientUse(seen.name, "unused", 0, None, site(self._last_backward_spot), made=site(seen.spot))
                )
        return found


def _share_parameter(one: dict[int, weakref.ref[torch.Tensor]], other: dict[int, weakref.ref[torch.Tensor]]) -> bool:
    """Return whether two optimizers hold a common parameter, given references to their parameters by id."""
    return any(ref is other.get(number) for number, ref in one.items())


def _is_readable(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor can be read and kept; false if FSDP has freed their memory."""
    return private.is_readable(tensor) and 0 < tensor.numel() <= MAX_KEPT_ELEMENTS


def _any_may_be_nonzero(grads: Iterable[torch.Tensor | None]) -> bool:
    """Return whether a gradient may have nonzero elements. Small gradients are read first."""
    return any(map(may_be_nonzero, sorted((grad for grad in grads if grad is not None), key=torch.Tensor.numel)))


def _has_readable_gradient(tensor: object) -> bool:
    """Return whether a tensor has a gradient whose values can be read and kept."""
    grad = tensor.grad if isinstance(tensor, torch.Tensor) else None
    return grad is not None and _is_readable(grad)


def _current_gradient(one: _UsedGradient) -> torch.Tensor | None:
    """Return the tensor's current gradient if it can be compared with the used one; otherwise ``None``."""
    grad: torch.Tensor | None = getattr(one.tensor(), "grad", None)
    return grad if grad is not None and _is_readable(grad) and grad.shape == one.grad.shape else None


def _filter_by(used: list[_UsedGradient], condition: Callable[[_UsedGradient], object]) -> list[_UsedGradient]:
    """Return the elements of `used` for which `condition` holds.

    Conditions that are tensors on an accelerator are fetched together.
    """
    answers = [condition(one) for one in used]
    away = [answer for answer in answers if isinstance(answer, torch.Tensor)]
    read = iter(fetch(away))
    known = [next(read) if isinstance(answer, torch.Tensor) else answer for answer in answers]
    return [one for one, holds in zip(used, known, strict=True) if holds]


def _is_unchanged(one: _UsedGradient) -> bool | torch.Tensor:
    """Return whether the gradient is unchanged since the optimizer used it, and not zero.

    An accelerator is read only if the version counter shows no write.
    """
    grad = _current_gradient(one)
    if grad is None or grad._version != one.version:
        return False
    return _as_condition((grad == one.grad).all() & grad.any())


def _was_accumulated(one: _UsedGradient) -> bool:
    """Return whether the current gradient resulted from adding to the used one: otherwise the script has replaced it.

    Torch accumulates in place, unless it builds a graph of the accumulation.
    """
    grad = _current_gradient(one)
    return grad is not None and (grad is one.ref() or grad.requires_grad)


def _is_nonzero(one: _UsedGradient) -> bool | torch.Tensor:
    """Return whether the current gradient is not zero."""
    grad = _current_gradient(one)
    return False if grad is None else _as_condition(grad.any())


def _as_condition(condition: torch.Tensor) -> bool | torch.Tensor:
    """Return a condition as a bool, or as the tensor that it is if it is on an accelerator."""
    return bool(condition) if condition.is_cpu else condition
