"""The loss of a step: the sum of the roots whose gradients accumulate in it.

Note [The loss of a step]: gradients accumulated over a step's backward calls are those of the sum of their roots, so
that sum is the step's loss: for ``loss / 4`` in four calls it is the mean, for two losses trained together their sum. A
call whose gradients were cleared before the next one (an adversarial attack on the input, an optimizer's closure that
runs again) adds nothing. The scale of a ``GradScaler`` is divided out, also in the norms of the call's gradients. A
factor that the script itself applies cannot be told from a part of its loss: it stays, in loss and gradients alike.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import NamedTuple

import torch

from ...records import Root
from ...source.frames import Frames, variables
from ...torch_internals import private
from ...torch_internals.async_scalars import capturing
from ...torch_internals.grad_scaler import Scales, factor_of

#: The most losses of one step that are held on an accelerator.
MAX_HELD_LOSSES = 1000
#: The number of steps in a row with gradients cleared between calls after which all steps are assumed to be like that.
MAX_CLEARED_STEPS = 3


class NotedLoss(NamedTuple):
    """The contribution of one or several fast-path calls to the loss of their step.

    :ivar value: the sum of their roots, without a scaler's factor; ``None`` if no root is a number on the CPU.
    :ivar calls: the number of calls.
    :ivar scale: the factor that was divided out.
    :ivar away: roots on an accelerator, which are not waited for.
    """

    value: float | None = None
    calls: int = 0
    scale: float = 1.0
    away: Sequence[torch.Tensor] = ()

    def plus(self, other: NotedLoss) -> NotedLoss:
        """Return the sum of this loss and a later one, with the number of calls of both and the scale of the later."""
        if not other.calls:
            return self
        known = [value for value in (self.value, other.value) if value is not None]
        value = sum(known, 0.0) if known else None
        return NotedLoss(value, self.calls + other.calls, other.scale, (*self.away, *other.away))


class Losses:
    """The sum of the losses of a step.

    :param held_scale: returns the scale of a scaler that the running user code holds.
    """

    def __init__(self, held_scale: Callable[[], float | None]) -> None:
        """Start with no loss."""
        self._held_scale = held_scale
        self._scales = Scales()
        self._sum: float | None = None
        #: Losses on an accelerator, which are not waited for.
        self._on_accelerator: list[torch.Tensor] = []
        #: The number of backward calls whose roots were added up, and the scale that was divided out of the last.
        self.calls, self.scale = 0, 1.0
        #: Returns a leaf to which the last call gave a gradient; if its gradient is gone, gradients were cleared.
        self._checked_leaf: Callable[[], torch.Tensor | None] = lambda: None
        #: References to the leaves of the last call, if its end was not observed.
        self._unobserved_leaves: list[Callable[[], torch.Tensor | None]] = []
        #: The number of calls whose losses were added up in the last step; 0 if gradients were cleared between them, so
        #: that the roots alone do not determine the sum.
        self.summed_calls = 0
        #: Whether gradients were cleared between calls of the running step.
        self._was_cleared = False
        #: The number of latest steps in a row in which gradients were cleared between calls.
        self._cleared_steps = 0

    @property
    def was_just_cleared(self) -> bool:
        """Return whether gradients were cleared in the last step, but not in several in a row.

        The next step may be ordinary again.
        """
        return 0 < self._cleared_steps < MAX_CLEARED_STEPS

    def scale_of(self, roots: Sequence[object], wait: bool = True) -> float:
        """Return the factor by which a scaler multiplied `roots`; 1 if none did.

        :param wait: read the factor also if that waits for an accelerator.
        """
        for root in roots:
            factor = factor_of(root) if isinstance(root, torch.Tensor) else None
            if factor is not None and (factor.is_cpu or (wait and not capturing())):
                if not (factor.is_cpu or self._scales.is_scale(factor) or self._held_scale() is not None):
                    continue  # a factor of the script's own is not waited for
                with private.hide_from_dispatch_modes():
                    value = float(factor.item())
                if value > 0 and value != 1.0 and (self._scales.is_scale(factor) or self._held_scale() == value):
                    return value
        return 1.0

    def accelerator_scale(self, roots: Sequence[object]) -> torch.Tensor | None:
        """Return the factor of a known scaler that multiplied `roots`, if it is on an accelerator.

        ``None`` otherwise.
        """
        for root in roots if self._scales.current is not None else ():
            factor = factor_of(root) if isinstance(root, torch.Tensor) else None
            if factor is not None and not factor.is_cpu and self._scales.is_scale(factor):
                return factor
        return None

    def note_scale_update(self, scale: torch.Tensor) -> None:
        """Note that a scaler is about to update its `scale`."""
        self._scales.updated(scale)

    @property
    def current_scale(self) -> torch.Tensor | None:
        """Return the scale of a scaler that was seen to update it, on its device; ``None`` if there is none."""
        scale = self._scales.current
        return None if scale is None else scale.detach().reshape(())

    def factor(self, roots: Sequence[object]) -> tuple[torch.Tensor | None, bool]:
        """Return (factor, certain): the factor of a known scaler that multiplied `roots`, or ``None`` if none did.

        Does not wait for an accelerator.
        """
        if self._scales.current is None:
            return None, True
        factors = [factor_of(root) if isinstance(root, torch.Tensor) else None for root in roots]
        known = [factor for factor in factors if factor is not None and self._scales.is_scale(factor)]
        if not known or len(known) < len(factors):
            return None, False
        return known[0].detach().reshape(()), True

    def accelerator_losses(self, roots: Sequence[object]) -> list[torch.Tensor]:
        """Return the `roots` that are scalars on an accelerator, with a scaler's factor divided out.

        They stay on the accelerator.
        """
        found = []
        for root in roots:
            if not isinstance(root, torch.Tensor) or root.is_cpu or root.numel() != 1 or not root.is_floating_point():
                continue
            if root.layout is torch.strided and not private.is_unsafe_to_read(root):
                factor, value = factor_of(root), root.detach()
                scaled = factor is not None and self._scales.is_scale(factor)
                found.append(value / factor.detach() if scaled and factor is not None else value)
        return found

    def begin_call(self) -> None:
        """Begin a call that accumulates gradients. Drops the losses so far if the gradients were cleared."""
        reached = [_is_cleared(leaf()) for leaf in self._unobserved_leaves]
        if self.calls and (_is_cleared(self._checked_leaf()) or (reached and all(reached))):
            self._sum, self.calls, self._on_accelerator = None, 0, []
            self._was_cleared = True

    def add_fast_path_losses(self, noted: NotedLoss) -> None:
        """Add the losses of fast-path calls to the loss of the running step."""
        if noted.calls:
            if noted.value is not None:
                self._sum = (self._sum or 0.0) + noted.value
            self._on_accelerator += noted.away
            self.calls, self.scale = self.calls + noted.calls, noted.scale

    def noted_loss(self, value: float | None, roots: Sequence[object]) -> NotedLoss:
        """Return the contribution of a fast-path call's roots to the loss of its step.

        :param value: the sum of the roots that are numbers on the CPU; ``None`` if none is.
        """
        scale = self.scale_of(roots, False) if self._scales.current is not None else 1.0
        away = self.accelerator_losses(roots) if value is None or len(roots) > 1 else ()
        value = value if value is None or scale == 1.0 else value / scale
        return NotedLoss(value, int(value is not None or bool(away)), scale, away)

    def add_call(
        self,
        values: Iterable[float | None],
        scale: float,
        away: Sequence[torch.Tensor] = (),
    ) -> None:
        """Add a finished call: the unscaled `values` of its roots, and the roots that are `away` on an accelerator."""
        known = [value for value in values if value is not None]
        if known:
            self._sum = (self._sum or 0.0) + sum(known)
        if away and len(self._on_accelerator) < MAX_HELD_LOSSES:
            self._on_accelerator += away
        if known or away:
            self.calls += 1
            self.scale = scale

    def note_gradients(self, leaves: Iterable[torch.Tensor]) -> None:
        """Note that a call is over; a leaf of it that has a gradient shows later whether gradients were cleared."""
        given = next((leaf for leaf in leaves if leaf.grad is not None), None)
        if given is not None:
            self._checked_leaf, self._unobserved_leaves = private.tensor_ref(given), []

    def note_unobserved_call(self, leaves: Sequence[torch.Tensor]) -> None:
        """Note that a call begins whose end is not observed; `leaves` show later whether gradients were cleared."""
        own = [leaf for leaf in leaves if isinstance(leaf, torch.nn.Parameter)]
        self._checked_leaf = lambda: None
        self._unobserved_leaves = [private.tensor_ref(leaf) for leaf in own or leaves]

    def take(self) -> tuple[float | None, int, float, list[torch.Tensor]]:
        """Return loss, number of backward calls, loss scale and losses on an accelerator of the finished step; reset
        them.
        """
        taken = self._sum, self.calls, self.scale, self._on_accelerator
        # A step without a loss, such as one whose backward raised, says nothing about the next ones.
        self.summed_calls, before = 0 if self._was_cleared else self.calls or self.summed_calls, self._cleared_steps
        self._cleared_steps, self._was_cleared = before + 1 if self._was_cleared else 0, False
        self._sum, self.calls, self.scale, self._on_accelerator = None, 0, 1.0, []
        return taken


def _is_cleared(leaf: torch.Tensor | None) -> bool:
    """Return whether a gradient that `leaf` had is gone; ``False`` if that cannot be read without waiting."""
    if leaf is None:
        return False
    return leaf.grad is None or is_zero(leaf.grad) is True


def is_zero(grad: torch.Tensor | None) -> bool | None:
    """Return whether a gradient is zero everywhere.

    ``None`` if that is not known without waiting, or if one of the user's modes would see the check.
    """
    grad = private.local(grad)
    if grad is None or grad.layout is not torch.strided or not grad.is_cpu:
        return None
    if private.in_mode() and not private.is_plain(grad):
        return None
    with torch.no_grad(), private.hide_from_dispatch_modes():
        return not grad.detach().count_nonzero()


def loss_scale(frames: Frames) -> float | None:
    """Return the scale of a ``GradScaler`` that the running user code holds in a variable or attribute; ``None``
    without.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frames.is_user(frame.f_code):
            local = variables(frame)
            for value in (*local.values(), *getattr(local.get("self"), "__dict__", {}).values()):
                if isinstance(value, torch.amp.GradScaler) and value.is_enabled():
                    return float(value.get_scale())
        frame = frame.f_back
    return None


def unscaled(root: Root, scale: float) -> Root:
    """Return `root` with the scaler's factor divided out."""
    return root if root.value is None or scale == 1.0 else dataclasses.replace(root, value=root.value / scale)
