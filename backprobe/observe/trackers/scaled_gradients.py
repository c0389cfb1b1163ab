"""Finds optimizers that step with gradients which still have the factor of a ``GradScaler``.

Note [Gradients with a factor]: a backward call from a loss that a scaler multiplied gives gradients with its factor.
``scaler.step`` and ``scaler.unscale_`` divide it out, or let the optimizer do so. A step is counted if all of this
holds:

- The optimizer is one of torch's own without hooks before its step: it uses gradients as they are.
- No scaler calls the step.
- Some gradients of the call are the same tensors as after it, with the same version and, since writes through ``.data``
  do not change the version, the same values.

If a single step of the optimizer with such gradients is of another kind, nothing is reported.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ... import thresholds
from ...records import ScaledGradients
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.async_scalars import capturing, fetch
from ...torch_internals.grad_scaler import has_step_pre_hooks, scaler_frame
from ...torch_internals.optimizers import parameters_of
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..schedule.seen_optimizers import SeenOptimizer
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of gradients of a call, of elements of each that are compared, and of results of comparisons that an
#: accelerator holds; of optimizers.
MAX_GRADIENTS, MAX_ELEMENTS, MAX_HELD_RESULTS, MAX_OPTIMIZERS = 4, 64, 32, 50


class _Gradient(NamedTuple):
    """A gradient as a backward call left it: some of its values, and the factor that it has."""

    parameter: weakref.ref[torch.Tensor]
    grad: weakref.ref[torch.Tensor]
    version: int
    values: torch.Tensor
    scale: float
    spot: CodeLocation | None


@dataclass
class _Steps:
    """Steps of an optimizer with gradients of scaled losses.

    :ivar others: a step was of another kind, and nothing is reported.
    :ivar changed: results of comparisons on an accelerator: whether values changed.
    """

    ref: weakref.ref[torch.optim.Optimizer]
    name: str
    first: int
    scale: float
    stepped: CodeLocation | None
    backward: CodeLocation | None
    seen: SeenOptimizer | None
    count: int = 0
    others: bool = False
    changed: list[torch.Tensor] = field(default_factory=list)


class ScaledGradientTracker(Tracker):
    """Tracker of steps with gradients that have a factor: Note [Gradients with a factor]."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        #: By id of a parameter.
        self._gradients_with_scale: dict[int, _Gradient] = {}
        self._steps: dict[int, _Steps] = {}

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget gradients that no optimizer has used, if they are many."""
        if len(self._gradients_with_scale) > MAX_GRADIENTS * MAX_GRADIENTS:  # of optimizers that do not step
            self._gradients_with_scale.clear()

    def observing_pauses(self) -> None:
        """Forget the gradients of the last calls."""
        self._gradients_with_scale.clear()

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note gradients with a scaler's factor after a recorded call."""
        self._note_gradients(running)

    def backward_repeated(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Note gradients with a scaler's factor after a call whose forward was not recorded."""
        self._note_gradients(running)

    def _note_gradients(self, running: ActiveBackward) -> None:
        """Note some gradients of a call whose loss a scaler multiplied, or forget those to which others were added."""
        if running.kind == "autograd.grad" or running.inside is not None or running.error is not None:
            return
        if running.scale == 1.0:
            for _, leaf in running.graph.leaves if self._gradients_with_scale else ():
                self._gradients_with_scale.pop(id(leaf), None)
            return
        with private.measuring():
            count = 0
            for _, leaf in running.graph.leaves:
                grad = leaf.grad
                if grad is None or not private.is_readable(grad) or not grad.is_contiguous() or not grad.numel():
                    continue
                values = grad.detach().view(-1)[:MAX_ELEMENTS].clone()
                refs = private.tensor_ref(leaf), private.tensor_ref(grad)
                self._gradients_with_scale[id(leaf)] = _Gradient(
                    *refs, grad._version, values, running.scale, running.spot
                )
                count += 1
                if count == MAX_GRADIENTS:
                    return

    def optimizer_begins(self, optimizer: object) -> None:
        """Check whether an optimizer is about to use gradients that still have a scaler's factor, and count the
        step.
        """
        if not self._gradients_with_scale:
            return
        seen = self._context.steps.optimizers.get(id(optimizer))
        held = {id(p): p for p in parameters_of(optimizer)}
        mine = {
            key: one for key, one in self._gradients_with_scale.items() if key in held and one.parameter() is held[key]
        }
        if not mine:
            return
        self._gradients_with_scale = {key: one for key, one in self._gradients_with_scale.items() if key not in mine}
        steps = self._steps.get(id(optimizer))
        if steps is None or steps.ref() is not optimizer:
            if len(self._steps) >= MAX_OPTIMIZERS:
                return
            one, spot = next(iter(mine.values())), self._context.frames.spot(sys._getframe())
            steps = _Steps(
                *(weakref.ref(optimizer), type(optimizer).__name__, self._context.steps.index, one.scale, spot),
                *(one.spot, seen),
            )
            self._steps[id(optimizer)] = steps
        steps.seen = steps.seen or seen
        steps.others = steps.others or scaler_frame(sys._getframe()) is not None or _may_divide_gradients(optimizer)
        if not steps.others:
            with private.measuring():
                self._count_step(steps, mine, held)

    def _count_step(self, steps: _Steps, mine: dict[int, _Gradient], held: dict[int, torch.Tensor]) -> None:
        """Count a step, unless one of its gradients is not what its backward call left.

        :param mine: by id of a parameter, its gradient after the call; `held`: the parameters by id.
        """
        for key, one in mine.items():
            grad: torch.Tensor | None = one.grad()
            if grad is None or held[key].grad is not grad or grad._version != one.version:
                steps.others = True
                return
            now = grad.detach().view(-1)[:MAX_ELEMENTS]
            changed = ((now != one.values) & ((now == now) | (one.values == one.values))).any()
            if not changed.is_cpu:
                if len(steps.changed) < MAX_HELD_RESULTS:
                    steps.changed.append(changed)
            elif changed:
                steps.others = True
                return
        steps.count += 1

    def records(self) -> tuple[ScaledGradients, ...]:
        """Return a record of each optimizer that steps with scaled gradients; none while a CUDA graph is captured."""
        if capturing():
            return ()
        with private.measuring():
            return tuple(self._find_records())

    def _find_records(self) -> Iterator[ScaledGradients]:
        """Yield a record of each optimizer with enough steps of this kind and none of another."""
        site = self._context.frames.site
        for one in self._steps.values():
            if one.others or one.count < thresholds.SCALED_GRADIENT_MIN_STEPS or any(fetch(one.changed)):
                continue
            made = site(one.seen.spot) if one.seen is not None else None
            yield ScaledGradients(
                *(one.name, one.first, one.count, one.scale, site(one.stepped), site(one.backward), made)
            )


def _may_divide_gradients(optimizer: object) -> bool:
    """Return whether an optimizer may divide its gradients itself.

    So do those that a scaler gave its factor, those of the script, and hooks.
    """
    own = type(optimizer).__module__.startswith("torch.optim.")
    return not own or getattr(optimizer, "grad_scale", None) is not None or has_step_pre_hooks(optimizer)
