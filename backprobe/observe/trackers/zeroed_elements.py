"""Detects elements whose gradients the script sets to zero, in part of a parameter, and that the optimizer moves.

Note [Elements that are frozen by zeros]: an element is frozen if a backward call gave it a gradient that was not zero,
which then was zero when the optimizer had stepped: a hook of the parameter, or a line after the call, set it to zero.
So the tracker reads the gradient twice: when it reaches the parameter's hooks (or when the call is over), and when the
optimizer has stepped. A parameter whose gradient only happens to have zeros, as that of an embedding, has them at both
looks. Elements that a hook's mask sets to zero are frozen, too: Note [Masks of hooks]. An element counts if its
gradient was zero at all looks from the first such one on, and its weight changed in the step and was not put back
before the next backward call.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ... import thresholds
from ...records import ZeroedElements
from ...source.definitions import zeroes
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.measure import nonzero_rows, spread
from ...torch_internals.optimizers import parameters_of
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..forward.leaves import LeafTensor
from ..ledger.changes import is_measurable
from ..schedule.observed_steps import is_observed_step
from ..schedule.seen_optimizers import SeenOptimizer
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .hook_masks import mask_of

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

#: The most parameters of an optimizer, parameters that are examined, and lines of one.
MAX_PARAMETERS, MAX_EXAMINED, MAX_LINES = 1000, 64, 3
#: The most elements of a parameter that are compared, at even distances, and of one whose rows are read.
MAX_SAMPLED_ELEMENTS, MAX_ELEMENTS = 4096, 1 << 24


@dataclass
class _ParameterState:
    """A parameter whose gradient has zeros that may come from the script.

    :ivar received: the elements of which the last backward call gave a gradient that is not zero; ``None`` if unknown.
    :ivar given: the last gradient before the only hook of the parameter; ``mask``: what that hook may multiply it by.
    :ivar before: the weights before the step; ``after``: with the elements that moved, until it is known whether the
        script puts them back.
    :ivar frozen: the elements that the script set to zero, and that were zero at all looks since. ``releases``: how
        often some had a gradient again, after which they are counted anew.
    :ivar rows: the rows whose gradient was zero at all looks since then. ``start``: the weights at the first one.
    :ivar line: the line that set elements to zero since the last backward call; ``lines``: all such lines so far.
    :ivar first, last, looks: the steps in which frozen elements moved. ``restored``: the script puts weights back.
    :ivar is_inferred: some elements are frozen by a mask, and got no gradient.
    """

    leaf: LeafTensor
    ref: weakref.ref[torch.Tensor]
    optimizer: weakref.ref[torch.optim.Optimizer]
    seen: SeenOptimizer | None = None
    received: torch.Tensor | None = None
    given: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    before: torch.Tensor | None = None
    after: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
    frozen: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    start: torch.Tensor | None = None
    end: torch.Tensor | None = None
    shape: tuple[int, ...] = ()
    first: int = 0
    last: int = 0
    looks: int = 0
    releases: int = 0
    restored: bool = False
    is_inferred: bool = False
    decays: set[str] = field(default_factory=set)
    hooks: tuple[object, ...] = ()
    line: CodeLocation | None = None
    lines: set[CodeLocation] = field(default_factory=set)
    stepped: CodeLocation | None = None

    @property
    def is_ignored(self) -> bool:
        """Whether the parameter is not examined any more: its weights are put back, or other elements are zero each
        time.
        """
        return self.restored or self.releases >= thresholds.FROZEN_ELEMENT_MAX_RELEASES


class ZeroedElementTracker(Tracker):
    """Tracker of frozen elements that move: Note [Elements that are frozen by zeros].

    It looks at recorded steps out of those that the ledger accounts for.
    """

    def __init__(self, context: TrackerContext) -> None:
        """Start without parameters."""
        self._context, self._frames = context, context.frames
        self._states: dict[int, _ParameterState] = {}
        self._handles: list[RemovableHandle] = []
        #: After a backward call, by the id of a gradient and by the address of its memory: the id of the parameter.
        #: ``_gradient_versions``: by id of the parameter, the id of its gradient and its version.
        self._parameter_by_gradient: dict[int, int] = {}
        self._gradient_versions: dict[int, tuple[int, int]] = {}
        #: Parameters whose gradients were written since then; by the id of a gradient, the line that set it.
        self._written_parameters: set[int] = set()
        self._assigned_gradients: dict[int, CodeLocation] = {}

    # Backward calls

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Register hooks on the leaves of an outermost call that have hooks of the script, to see their gradients
        before these.

        Also check whether the script has put back the elements that moved in the last step.
        """
        self._forget_backward()
        if (
            running.inside is not None
            or running.kind == "autograd.grad"
            or not is_observed_step(self._context.steps.index)
        ):
            return
        with private.measuring():
            self._check_restored()
            for i, leaf in running.graph.leaves:
                if (leaf._backward_hooks or _post_accumulate_hooks_of(leaf)) and is_measurable(leaf):
                    self._register_hook(leaf, running.graph.nodes[i])

    def _check_restored(self) -> None:
        """Note which parameters' moved elements the script has put back since the last step."""
        for one in self._states.values():
            parameter = one.ref()
            if one.after is not None and parameter is not None:
                moved, before, _ = one.after
                now = _sample(parameter)
                one.after = None
                if now.shape == before.shape:
                    one.restored = one.restored or bool((now == before)[moved].all())

    def _register_hook(self, leaf: torch.Tensor, accumulator: torch.autograd.graph.Node) -> None:
        """Register a hook that gets the gradient of `leaf` before the script's hooks do, if the parameter is
        followed.
        """
        one = self._state_of(leaf)
        if one is None:
            return
        hooks, contained = leaf._backward_hooks, self._context.events.contained
        own = self._context.recorder.push
        known, found = one.hooks, (*(hooks or {}).values(), *_post_accumulate_hooks_of(leaf))
        one.hooks = tuple(hook for hook in found if hook != own)
        if known != one.hooks:
            mask = mask_of(one.hooks[0], leaf.shape) if len(one.hooks) == 1 else None
            one.mask = _sample(mask).clone() if mask is not None else None
        if not hooks:
            before = contained(self, lambda grads: self._keep_received(one, grads[0]))
            self._handles.append(accumulator.register_prehook(before))
            return
        handle = leaf.register_hook(contained(self, self._keep_received, one))
        self._handles.append(handle)
        for at in [at for at in hooks if at != handle.id]:  # the engine calls hooks in insertion order
            hooks[at] = hooks.pop(at)

    def _keep_received(self, one: _ParameterState, grad: torch.Tensor | None) -> None:
        """Keep which elements of a parameter got a gradient that is not zero; called before the script's hooks change
        it.
        """
        with private.measuring():
            given = _sample(grad) if grad is not None and is_measurable(grad) else None
            one.received = given != 0 if given is not None else None
            one.given = given.clone() if given is not None and one.mask is not None else None

    def backward_detaching(self, running: ActiveBackward) -> None:
        """Remove the hooks on leaves when a backward call is over."""
        self._remove_hooks()

    def observing_pauses(self) -> None:
        """Remove the hooks on leaves, and forget the last backward call."""
        self._remove_hooks()
        self._forget_backward()

    def _remove_hooks(self) -> None:
        """Remove the hooks that ``_register_hook`` registered."""
        while self._handles:
            self._handles.pop().remove()

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note the gradients and weights after an outermost call, to tell later what the script and the optimizer
        change.
        """
        self._forget_backward(received=False)
        step = self._context.steps.index
        if running.inside is not None or running.kind == "autograd.grad" or not is_observed_step(step):
            return
        if recorded.raised is not None:
            self._forget_backward()
            return
        with private.measuring():
            for _, leaf in running.graph.leaves:
                grad = leaf.grad
                if grad is None or not is_measurable(grad):
                    continue
                self._gradient_versions[id(leaf)] = id(grad), grad._version
                self._parameter_by_gradient[id(grad)] = self._parameter_by_gradient[
                    grad.untyped_storage().data_ptr()
                ] = id(leaf)
                one = self._find_state(leaf)
                if one is not None:
                    one.before = _sample(leaf).clone()
                    if not one.hooks:
                        one.received = _sample(grad) != 0

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Forget the last backward call: this one changes gradients and is not observed."""
        self._forget_backward()

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """Forget the last backward call: calls of the fast path changed gradients unobserved."""
        self._forget_backward()

    def _forget_backward(self, received: bool = True) -> None:
        """Forget the last backward call: another one follows.

        :param received: forget which elements got a gradient, too.
        """
        if self._parameter_by_gradient:
            self._parameter_by_gradient, self._gradient_versions = {}, {}
            self._written_parameters, self._assigned_gradients = set(), {}
        if received:
            for one in self._states.values():
                one.received, one.given, one.before, one.line = None, None, None, None

    # Lines that change gradients

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note an in-place write to a gradient, and its line if it set elements to zero."""
        for tensor in written if self._parameter_by_gradient else ():
            number = self._parameter_by_gradient.get(id(tensor))
            if number is None and private.is_dense(tensor):
                with private.disable_function_modes(), private.hide_ops():
                    number = (
                        self._parameter_by_gradient.get(tensor.untyped_storage().data_ptr()) if tensor.is_cpu else None
                    )
            if number is not None:
                self._written_parameters.add(number)
                self._note_zeroing_line(number, frame)

    def _note_zeroing_line(self, number: int, frame: FrameType) -> None:
        """Note the line that wrote to the gradient of a parameter, if it is the first to set elements to zero.

        :param number: the id of the parameter.
        """
        one = self._states.get(number)
        parameter = one.ref() if one is not None else None
        if one is None or parameter is None or one.line is not None or one.received is None or one.hooks:
            return
        with private.measuring():
            grad = parameter.grad
            if grad is not None and is_measurable(grad) and bool((one.received & (_sample(grad) == 0)).any()):
                one.line = self._frames.spot(frame)

    def wrote_in_step(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note a write by a closure that an optimizer calls."""
        self.wrote(func, written, seq, frame)

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """Note the line that assigns another tensor to the gradient of a leaf."""
        if put and value is not None and self._parameter_by_gradient and (spot := self._frames.spot(frame)) is not None:
            self._assigned_gradients[id(value)] = spot

    # Steps

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Read the weights of followed parameters again right before their optimizer steps."""
        if not self._gradient_versions:
            return
        with private.measuring():
            for one in self._states.values():
                if one.before is not None and one.optimizer() is optimizer and (parameter := one.ref()) is not None:
                    one.before = _sample(parameter).clone()

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Compare gradients and weights of the optimizer's parameters after its step, and follow new ones with
        zeros.
        """
        if not self._gradient_versions:
            return
        spot = self._frames.spot(sys._getframe())
        with private.measuring():
            for parameter in parameters_of(optimizer)[:MAX_PARAMETERS]:
                grad = parameter.grad
                if grad is None or id(parameter) not in self._gradient_versions or not is_measurable(grad):
                    continue
                one = self._find_state(parameter)
                if one is not None and not one.is_ignored:
                    one.optimizer = weakref.ref(optimizer)
                    self._compare_elements(one, parameter, grad, spot)
                elif one is None and self._is_changed(parameter, grad) and bool((_sample(grad) == 0).any()):
                    self._state_of(parameter)
                del self._gradient_versions[id(parameter)]
        if not self._gradient_versions:
            self._forget_backward()

    def _is_changed(self, parameter: torch.Tensor, grad: torch.Tensor) -> bool:
        """Return whether the script wrote to the gradient, or replaced it, after the backward call."""
        same = self._gradient_versions[id(parameter)] == (id(grad), grad._version)
        return not same or id(parameter) in self._written_parameters

    def _find_state(self, parameter: torch.Tensor) -> _ParameterState | None:
        """Return the state of a parameter that is followed; otherwise ``None``."""
        one = self._states.get(id(parameter))
        return one if one is not None and one.ref() is parameter else None

    def _state_of(self, parameter: torch.Tensor) -> _ParameterState | None:
        """Return the state of a parameter, made if it is new; ``None`` if there are too many or it cannot be
        measured.
        """
        one = self._find_state(parameter)
        if one is None and len(self._states) < MAX_EXAMINED and is_measurable(parameter):
            leaf = self._context.names.leaves.get(parameter)
            nothing: Any = lambda: None  # noqa: E731
            one = self._states[id(parameter)] = _ParameterState(leaf, private.tensor_ref(parameter), nothing)
        return one

    def _compare_elements(
        self, one: _ParameterState, parameter: torch.Tensor, grad: torch.Tensor, spot: CodeLocation | None
    ) -> None:
        """Update which elements the script has frozen, and count the step if some of them moved in it.

        :param grad: the gradient after the step; `spot`: the line of the step.
        """
        received, before, now = one.received, one.before, _sample(grad)
        if received is None or before is None or now.shape != received.shape:
            return
        zero = now == 0
        hooked = bool(one.hooks)
        set_to_zero = received & zero
        if one.mask is not None and one.given is not None and torch.equal(now, (one.given * one.mask).to(now.dtype)):
            masked = one.mask == 0
            one.is_inferred = one.is_inferred or bool((masked & ~received).any())
            set_to_zero |= masked
        if not hooked and bool(zero.all()):
            return  # the ledger accounts for gradients that are zero as a whole
        if one.frozen is not None and bool((one.frozen & ~zero).any()):
            one.releases += 1
            one.frozen, one.looks, one.lines = None, 0, set()
        if one.frozen is None:
            if not bool(set_to_zero.any()):
                return
            one.frozen, one.start, one.shape = set_to_zero, before, tuple(parameter.shape)
            one.rows = _zero_rows(grad)
        else:
            rows = _zero_rows(grad)
            one.frozen |= set_to_zero
            one.rows = one.rows & rows if one.rows is not None and rows is not None else None
        after = _sample(parameter).clone()
        moved = one.frozen & (after != before)
        if bool(moved.any()):
            one.first = one.first if one.looks else self._context.steps.index
            one.looks, one.last, one.stepped = one.looks + 1, self._context.steps.index, spot
            one.after, one.end = (moved, before, after), after
            one.seen = self._context.steps.optimizers.get(id(one.optimizer()))
            one.decays.add(_cause_of_move(one.optimizer(), parameter, before[moved], after[moved]))
            line = one.line or self._assigned_gradients.get(id(grad))
            if line is not None and not hooked:
                one.lines.add(line)

    # Records

    def ended(self) -> None:
        """Read the frozen elements for the last time, unless the script put them back."""
        with private.measuring():
            self._check_restored()
            for one in self._states.values():
                parameter = one.ref()
                if one.looks and parameter is not None and is_measurable(parameter):
                    one.end = _sample(parameter).clone()

    def records(self) -> Iterator[ZeroedElements]:
        """Yield a record of each parameter whose frozen elements moved in enough steps."""
        with private.measuring():
            for one in self._states.values():
                if one.looks >= thresholds.FROZEN_ELEMENT_MIN_LOOKS and not one.is_ignored and one.frozen is not None:
                    record = self._record(one, one.frozen)
                    if record is not None:
                        yield record

    def _record(self, one: _ParameterState, frozen: torch.Tensor) -> ZeroedElements | None:
        """Return the record of how far the `frozen` elements of a parameter moved; ``None`` if they are where they
        began.
        """
        start, end = one.start, one.end
        if start is None or end is None or start.shape != end.shape or torch.equal(start[frozen], end[frozen]):
            return None
        was = float(start[frozen].double().norm())
        moved = float((end - start)[frozen].double().norm())
        were_zero = frozen & (start == 0)
        rows = _rows_of(frozen, one.rows, one.shape)
        site = self._frames.site
        optimizer = one.optimizer()
        lines = [zeroes(hook) for hook in one.hooks] if one.hooks else [site(spot) for spot in one.lines]
        return ZeroedElements(
            self._context.names.leaves.name(one.leaf),
            type(optimizer).__name__ if optimizer is not None else one.seen.name if one.seen is not None else "it",
            rows,
            one.shape[0] if one.shape else 1,
            float(frozen.double().mean()),
            moved / was if was else None,
            float((end[were_zero] != 0).double().mean()) if bool(were_zero.any()) else 0.0,
            one.decays.pop() if len(one.decays) == 1 else "",
            one.first,
            one.last,
            one.looks,
            bool(one.hooks),
            tuple(sorted({line for line in lines if line is not None}, key=lambda at: at.line))[:MAX_LINES],
            site(one.stepped),
            site(one.seen.spot) if one.seen is not None else None,
            one.is_inferred,
        )


def _post_accumulate_hooks_of(leaf: torch.Tensor) -> tuple[object, ...]:
    """Return the hooks that run after the gradient of `leaf` was accumulated."""
    return tuple(private.post_accumulate_hooks(leaf).values())


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return up to ``MAX_SAMPLED_ELEMENTS`` elements of a tensor at even distances, flat and detached."""
    sample: torch.Tensor = spread(tensor.detach().reshape(-1), MAX_SAMPLED_ELEMENTS)
    return sample


def _zero_rows(grad: torch.Tensor) -> torch.Tensor | None:
    """Return which rows of a gradient are zero; ``None`` if it has no rows, or is too large."""
    if grad.dim() < 2 or grad.numel() > MAX_ELEMENTS:
        return None
    return ~nonzero_rows(grad)


def _rows_of(frozen: torch.Tensor, rows: torch.Tensor | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rows that consist of frozen elements: the first and the last if they follow each other, or all of
    them.

    Empty if other elements of these rows are not frozen.
    """
    if rows is None or len(shape) < 2:
        return ()
    size = rows.numel() and int(torch.Size(shape).numel()) // rows.numel()
    stride = max(1, -(-int(torch.Size(shape).numel()) // MAX_SAMPLED_ELEMENTS))
    found = torch.unique(frozen.nonzero().flatten() * stride // size)
    if not bool(rows[found].all()):
        return ()
    first, last = int(found[0]), int(found[-1])
    whole = bool(rows[first : last + 1].all())
    return (*range(first, last + 1),) if whole else tuple(map(int, found.tolist()))


def _cause_of_move(
    optimizer: torch.optim.Optimizer | None, parameter: torch.Tensor, before: torch.Tensor, after: torch.Tensor
) -> str:
    """Return what moved elements whose gradient is zero: ``decay``, ``momentum``, or empty if that is not known.

    :param before: these elements of `parameter` before the optimizer's step; `after`: after it.
    """
    groups = optimizer.param_groups if optimizer is not None else ()
    group = next((one for one in groups if any(p is parameter for p in one["params"])), None)
    if group is None:
        return ""
    decay, rate = group.get("weight_decay", 0), float(group.get("lr", 0) or 0)
    if not decay:
        return "momentum"
    update, expected = (after - before).double(), -rate * float(decay) * before.double()
    norm = float(expected.norm())
    if (
        norm > thresholds.FROZEN_ELEMENT_MIN_UPDATE * float(before.double().norm())
        and float((update - expected).norm()) <= thresholds.FROZEN_ELEMENT_DECAY_TOLERANCE * norm
    ):
        return "decay"
    return "" if group.get("momentum", group.get("betas")) else "decay"
