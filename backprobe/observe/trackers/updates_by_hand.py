"""Checks the updates of scripts that train without an optimizer: ``p -= lr * p.grad``.

After a backward call, samples of weights and gradients are kept; when the next call begins, they are compared with the
weights. If each weight has moved by a multiple of its gradient, the script has made an update, and its direction is
known. A gradient that is still there when the next call begins is part of that call's gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from ... import thresholds
from ...records import ClimbingUpdates, GradientUse
from ...source.frames import CodeLocation
from ...source.rebinding import rebound_updates
from ...torch_internals import private
from ...torch_internals.forward_again import raises_to_natural_number
from ...torch_internals.measure import is_float, spread
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..forward.leaves import LeafTensor
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Most checked updates and calls; most leaves and elements of one that are compared; most lines that read gradients.
MAX_UPDATES, MAX_CALLS, MAX_LEAVES, MAX_ELEMENTS, MAX_READS = 24, 200, 8, 1024, 20
#: Nodes of losses that measure an error; and of those that do so if they take the mean or sum of ``ERRORS``.
LOSSES = frozenset(
    f"{name}Backward0"
    for name in (
        *("NllLoss", "NllLoss2D", "MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy"),
        *("BinaryCrossEntropyWithLogits", "CrossEntropyLoss", "KlDiv"),
    )
)
POWER = "PowBackward0"
REDUCTIONS, ERRORS = ("MeanBackward0", "SumBackward0"), (POWER, "AbsBackward0")


@dataclass
class _Leaf:
    """A leaf tensor with samples of its values and of its gradient after the last backward call.

    :ivar ref: a reference to the gradient.
    """

    leaf: LeafTensor
    weight: torch.Tensor
    gradient: torch.Tensor | None = None
    ref: Any = None


@dataclass
class _Update:
    """An update: the factors of the gradients by leaf, if it is a multiple of them; of so many ``elements``.

    :ivar whole: every leaf that has a gradient has moved.
    """

    rates: list[float]
    elements: int
    whole: bool


class HandUpdateTracker(Tracker):
    """Tracker of how a script without an optimizer changes its weights, in the first updates."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without leaves."""
        self._context = context
        self._leaves: list[_Leaf] = []
        #: The leaves that were compared last.
        self._sampled_leaves: list[LeafTensor] = []
        #: The ids of the leaves, by themselves and by the addresses of their memory.
        self._weights: dict[int, int] = {}
        self._is_over = self._has_optimizer = False
        #: The numbers of calls, of updates, and of calls that gave gradients after which no weight had moved.
        self._call_count = self._updates = self._quiet = 0
        #: The ids of the leaves that the last recorded call reached.
        self._reached_leaves: set[int] = set()
        #: The number of updates that climb; whether there were others, or calls that reached other leaves; and the
        #: factor of the gradient in the last update.
        self._climbing, self._others, self._rate = 0, False, 0.0
        #: The number of updates in a row that used gradients again; whether an update has used the present ones.
        self._reusing, self._is_used = 0, False
        #: The lines that read gradients, until there is an update.
        self._gradient_reads: set[CodeLocation] = set()
        self._loss: str | None = None
        self._updating_line: CodeLocation | None = None
        self._backward: CodeLocation | None = None

    # Events of backward calls

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Compare the weights before an outermost recorded call, and choose the leaves to sample in the first one."""
        if running.inside is not None or running.kind == "autograd.grad" or not self._before_backward():
            return
        leaves = {id(leaf) for leaf in running.live.named.values()}
        if not self._leaves:
            self._choose(running.live.named.values())
        self._others = self._others or (bool(self._reached_leaves) and leaves != self._reached_leaves)
        self._reached_leaves = leaves
        loss = _loss_of(running.starts) if running.arguments.get("gradient") is None else ""
        self._loss = loss if self._loss in (None, loss) else ""

    def sentinel_call_begins(self, spot: CodeLocation | None, roots: Sequence[object]) -> None:
        """Compare the weights before a call that is not recorded."""
        self._before_backward()

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Sample weights and gradients after an outermost recorded call."""
        if running.inside is None and running.kind != "autograd.grad":
            self._after_backward(running.spot)

    def sentinel_call_ended(self, spot: CodeLocation | None) -> None:
        """Sample weights and gradients after a call that was not recorded."""
        self._after_backward(spot)

    def fast_path_calls(self, spot: CodeLocation | None, count: int) -> None:
        """Forget the samples: what happened in fast-path steps is not known."""
        self._forget()

    def call_failed(self, what: str) -> None:
        """Forget the samples: the failed call may have changed some gradients."""
        self._forget()

    def _forget(self) -> None:
        """Forget the sampled weights and gradients, and whether an update has used them."""
        self._leaves, self._is_used = [], False
        self._weights.clear()

    def _before_backward(self) -> bool:
        """Compare the weights with those after the last call; return whether this call and later ones are to be
        checked.
        """
        if self._is_over:
            return False
        self._call_count += 1
        self._has_optimizer = not self._context.steps.no_optimizer_seen
        if self._leaves:
            with private.measuring():
                self._compare_weights()
        self._is_over = self._has_optimizer or self._call_count > MAX_CALLS or self._updates >= MAX_UPDATES
        if self._is_over:
            self._forget()
        return not self._is_over

    def _choose(self, leaves: Iterable[LeafTensor]) -> None:
        """Choose some of `leaves` at even distances, and sample their values."""
        with private.measuring():
            able = [leaf for leaf in leaves if (p := leaf.ref()) is not None and _can_sample(p)]
            self._sampled_leaves = spread(able, MAX_LEAVES)
            for leaf in self._sampled_leaves:
                tensor: Any = leaf.ref()
                self._leaves.append(_Leaf(leaf, _sample(tensor)))
                self._weights[id(tensor)] = self._weights[tensor.untyped_storage().data_ptr()] = id(tensor)

    def _after_backward(self, spot: CodeLocation | None) -> None:
        """Sample weights and gradients after a backward call at `spot`; forget all if one cannot be read."""
        if self._is_over or not self._leaves:
            return
        self._backward = spot
        with private.measuring():
            for one in self._leaves:
                tensor = one.leaf.ref()
                if tensor is None or not _can_sample(tensor):
                    self._forget()
                    return
                gradient: Any = tensor.grad
                known = gradient is not None and _can_sample(gradient)
                one.weight = _sample(tensor)
                one.gradient, one.ref = (_sample(gradient), private.tensor_ref(gradient)) if known else (None, None)

    # Comparison

    def _compare_weights(self) -> None:
        """Count whether the weights have moved along or against their gradients since the last call, or not at all."""
        update, moved = self._find_update()
        is_kept = all(map(_has_unchanged_gradient, self._leaves))
        if not moved:
            self._quiet += any(one.gradient is not None and bool(one.gradient.any()) for one in self._leaves)
            self._is_used = self._is_used and is_kept
            return
        self._updates += 1
        down = update is not None and all(rate < 0 for rate in update.rates)
        self._reusing = self._reusing + 1 if down and self._is_used else 0
        if self._reusing >= thresholds.HAND_UPDATE_MIN_REUSING:
            self._is_over = True
        self._is_used = down and is_kept
        if update is not None and update.whole and all(rate > 0 for rate in update.rates):
            self._climbing += 1
        else:
            self._others = True

    def _find_update(self) -> tuple[_Update | None, bool]:
        """Look whether the script has updated weights without an optimizer: by multiples of their gradients.
        :returns: the update, or ``None``; and whether any weight has moved.
        """
        rates, elements, moved, whole = list[float](), 0, 0, True
        is_multiple = True
        for one in self._leaves:
            tensor = one.leaf.ref()
            if tensor is None or not _can_sample(tensor):
                return None, True
            now, before = _sample(tensor), one.weight
            if now.shape != before.shape:
                return None, True
            if torch.equal(now, before):
                whole = whole and (one.gradient is None or not one.gradient.any())
                continue
            moved += 1
            rate = _gradient_factor(now - before, one.gradient, float(before.norm()) * torch.finfo(tensor.dtype).eps)
            if rate is None:
                is_multiple = False
                continue
            rates.append(rate)
            elements += now.numel()
        if not moved or not is_multiple or not rates:
            return None, bool(moved)
        before_rate, self._rate = self._rate, rates[-1]
        alike = all(
            abs(rate - before_rate) <= thresholds.HAND_UPDATE_MAX_RATE_DIFFERENCE * abs(before_rate) for rate in rates
        )
        is_known = elements >= thresholds.HAND_UPDATE_MIN_ELEMENTS or alike or self._updates == 0
        return (_Update(rates, elements, whole) if is_known else None), True

    # Lines, in recorded steps

    def wrote(self, func: object, written: list[torch.Tensor], seq: int, frame: FrameType) -> None:
        """Note the line that writes in place to a sampled weight."""
        for tensor in written if self._weights else ():
            if self._is_weight(tensor):
                self._updating_line = self._context.frames.spot(frame) or self._updating_line

    def _is_weight(self, tensor: torch.Tensor) -> bool:
        """Return whether `tensor` is a sampled weight or shares the memory of one."""
        if id(tensor) in self._weights:
            return True
        if not private.is_plain(tensor) or tensor.layout is not torch.strided:
            return False
        try:
            with private.disable_function_modes(), private.hide_ops():
                return tensor.untyped_storage().data_ptr() in self._weights
        except (RuntimeError, NotImplementedError):  # a tensor without memory
            return False

    def data_assigned(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note the line that assigns ``.data`` of a sampled weight."""
        if id(tensor) in self._weights:
            self._updating_line = self._context.frames.spot(frame) or self._updating_line

    def grad_read_or_set(self, value: object, put: bool, frame: FrameType) -> None:
        """Note the line that reads a gradient, as long as no update was observed."""
        if self._weights and not (put or self._updates) and len(self._gradient_reads) < MAX_READS:
            spot = self._context.frames.spot(frame)
            if spot is not None:
                self._gradient_reads.add(spot)

    # Records

    def records(self) -> tuple[GradientUse | ClimbingUpdates, ...]:
        """Return what is wrong with the updates: gradients used again, no effect, or weights that climb; none with an
        optimizer.
        """
        if self._has_optimizer or not self._context.steps.no_optimizer_seen:
            return ()
        site = self._context.frames.site
        if self._reusing >= thresholds.HAND_UPDATE_MIN_REUSING:
            return (GradientUse("", "by-hand", 0, site(self._updating_line), site(self._backward)),)
        if self._quiet >= thresholds.HAND_UPDATE_MIN_QUIET_CALLS and not self._updates:
            ran = {(line.file, line.line) for line in map(site, self._gradient_reads) if line is not None}
            lines = [line for line in rebound_updates(self._context.frames) if (line.file, line.line) in ran]
            return tuple(GradientUse("", "rebound", 0, line, site(self._backward)) for line in lines)
        if self._climbing < thresholds.HAND_UPDATE_MIN_CLIMBING or self._others or not self._loss:
            return ()
        names = tuple(map(self._context.names.leaves.name, self._sampled_leaves))
        if len(names) < thresholds.HAND_UPDATE_MIN_PARAMETERS:
            return ()
        counts = self._climbing, self._rate
        return (ClimbingUpdates(names, self._loss, *counts, site(self._updating_line), site(self._backward)),)


def _can_sample(tensor: Any) -> bool:
    """Return whether values of a tensor can be read without waiting for an accelerator."""
    return (
        private.is_dense(tensor)
        and private.is_readable(tensor)
        and tensor.is_cpu
        and is_float(tensor)
        and not tensor.is_complex()
        and tensor.numel() > 0
        and tensor.is_contiguous()
    )


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of some elements of a tensor, at even distances, in float64."""
    sample: torch.Tensor = spread(tensor.detach().view(-1), MAX_ELEMENTS).to(torch.float64, copy=True)
    return sample


def _gradient_factor(change: torch.Tensor, gradient: torch.Tensor | None, rounding: float) -> float | None:
    """Return the factor of the gradient that gives the change of a weight; ``None`` if it is no multiple of it.

    :param rounding: the norm of what rounding may add.
    """
    if gradient is None or gradient.shape != change.shape or not (square := float(gradient.dot(gradient))):
        return None
    factor = float(change.dot(gradient)) / square
    rest, size = float((change - factor * gradient).norm()), float(change.norm())
    return factor if rest <= thresholds.HAND_UPDATE_MAX_REST * size + 4 * rounding < size else None


def _has_unchanged_gradient(one: _Leaf) -> bool:
    """Return whether the gradient of the last backward call is there, and unchanged."""
    tensor = one.leaf.ref()
    if one.gradient is None or tensor is None:
        return True  # there was none
    gradient = tensor.grad
    if gradient is None or gradient is not one.ref() or not _can_sample(gradient):
        return False
    return torch.equal(_sample(gradient), one.gradient) and bool(one.gradient.any())


def _loss_of(starts: Sequence[torch.autograd.graph.Node]) -> str:
    """Return the name of the node of the loss if it measures an error; empty otherwise."""
    if len(starts) != 1 or starts[0] is None:
        return ""
    name: str = starts[0].name()
    if name in LOSSES:
        return name
    below = starts[0].next_functions[0][0] if name in REDUCTIONS else None
    if below is None or below.name() not in ERRORS:
        return ""
    measures = below.name() != POWER or raises_to_natural_number(below)
    return f"{name} of {below.name()}" if measures else ""
