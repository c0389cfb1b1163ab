"""The account of one parameter that an optimizer holds.

Note [Accounts]: an account compares the parameter with what it was at the last look. Looks are taken when a backward
call begins and ends, and when an optimizer's step begins and ends; nothing else is observed, so an account costs
nothing between them and needs no recorded step. The identity and version of the gradient say whether it was changed,
and its values whether it is zero: writes through ``.data`` do not change the version. What changed it follows from the
look: a backward call if the look is at its end, otherwise the script. Weights are
compared by the values of a sample of their elements (``sample_norms``); without a sample (on an accelerator, for
subclasses), by the version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import torch

from ... import thresholds
from ...records import WeightChange
from ...records import ledger as events
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.measure import is_float, spread
from ..forward.leaves import LeafTensor
from .changed_by import Change

#: Most events of one period; most elements of a sample, and of a tensor that must be copied to sample it.
MAX_EVENTS, MAX_SAMPLED_ELEMENTS, MAX_COPIED_ELEMENTS = 64, 4096, 1 << 20
#: Maximum number of elements of a gradient that are read first to know whether any is not zero.
MAX_ELEMENTS_READ_AT_FIRST = 16

#: What happened; the place, if it identifies the event; the numbers of optimizers.
Event: TypeAlias = tuple[str, CodeLocation | None, tuple[int, ...]]


class Account:
    """The account of one parameter since its optimizer last stepped.

    :ivar ref: a reference to the parameter; ``leaf``: its record, which names it; ``dtype``: of torch; ``cast``: the
        line that was observed to give it this dtype.
    :ivar is_sampled: its values are compared in this period.
    :ivar events: the events of the period, each with how often it happened in a row; ``None`` while the account is
        closed: something was missed. ``causes``: by position of an event, the changes that were observed to cause it.
    :ivar grad, grad_version: a reference to the gradient of the last look, and its version.
    :ivar is_reused: that gradient is what the last step used, unchanged; ``is_zero``: all its elements are zero.
    :ivar is_perturbed: the weight was changed after the first backward call of the period, and not restored since.
    :ivar changes: what some of the steps changed, in all periods. ``needs_measurement``: the last step left the weight
        as it was, for a reason that only a measurement shows.
    """

    __slots__ = (
        "cast",
        "causes",
        "changes",
        "dtype",
        "events",
        "first_weight_norm",
        "grad",
        "grad_version",
        "is_perturbed",
        "is_reused",
        "is_sampled",
        "is_zero",
        "leaf",
        "needs_measurement",
        "ref",
        "step_weight_norm",
        "weight_norm",
        "weight_version",
    )

    def __init__(self, parameter: torch.Tensor, leaf: LeafTensor, cast: CodeLocation | None = None) -> None:
        """Make a closed account of `parameter`, whose dtype is from line `cast`; ``begin_period`` opens it."""
        self.ref, self.leaf, self.cast = private.tensor_ref(parameter), leaf, cast
        self.dtype = str(parameter.dtype).removeprefix("torch.")
        self.changes: list[WeightChange] = []
        self.events: list[list[Any]] | None = None
        self.causes: dict[int, set[Change]] = {}
        self.grad: Any = None
        self.grad_version = self.weight_version = 0
        self.is_reused = self.is_zero = self.is_perturbed = self.is_sampled = self.needs_measurement = False
        #: The norm of the weight's sample at the last look, at the first backward call of the period, and when the
        #: optimizer's step began.
        self.weight_norm: float | None = None
        self.first_weight_norm: float | None = None
        self.step_weight_norm: float | None = None

    def begin_period(self, parameter: Any, value: float | None, stepped: bool = True) -> None:
        """Begin a period: take over the gradient and weight as they are, and forget the events of the last period.

        :param value: the norm of the weight's sample, if it was taken.
        :param stepped: the optimizer has just stepped and used the gradient that is there.
        """
        self.events, self.causes = [], {}
        self._remember_gradient(parameter.grad)
        self.is_reused, self.is_perturbed = stepped and self.grad is not None, False
        self.is_zero = self.is_zero and self.is_reused
        self.weight_norm, self.first_weight_norm, self.step_weight_norm = value, None, None
        self.weight_version = parameter._version

    def end_period(self) -> None:
        """End the period and drop its events, because something was missed."""
        self.events = None

    def add_event(self, what: str, spot: CodeLocation | None = None, optimizers: tuple[int, ...] = ()) -> None:
        """Add an event to the period, or count it again if it is the last one; drop the period if it has too many."""
        found = self.events
        if found is None:
            return
        event: Event = (what, spot, optimizers)
        if found and found[-1][0] == event:
            found[-1][1] += 1
        elif len(found) < MAX_EVENTS:
            found.append([event, 1])
        else:
            self.events = None

    def add_causes(self, lines: Iterable[Change]) -> None:
        """Add lines that were observed to cause the last event."""
        if self.events:
            self.causes.setdefault(len(self.events) - 1, set()).update(lines)

    def compare_gradient(self, parameter: Any) -> str:
        """Add an event if the script has changed the gradient since the last look, and return its kind; else empty."""
        grad: Any = parameter.grad
        known = self.grad
        if grad is None:
            if known is None:
                return ""
            what = events.CLEARED
        else:
            same = known is not None and known() is grad
            unchanged = same and grad._version == self.grad_version
            if unchanged and self.is_zero:
                return ""
            zero = not may_be_nonzero(grad)  # also if unchanged: ``p.grad.data.zero_()`` leaves the version as it is
            if unchanged and not zero:
                return ""
            what = events.ZEROED if zero else events.SCALED if same else events.REPLACED
        self._remember_gradient(grad)
        self.is_reused, self.is_zero = False, what == events.ZEROED
        self.add_event(what)
        return what

    def update_after_backward(self, parameter: Any) -> str:
        """Take over the gradient after a backward call, and return the event; empty if the call gave no gradient."""
        grad: Any = parameter.grad
        known = self.grad
        if grad is None or (known is not None and known() is grad and grad._version == self.grad_version):
            return ""
        what = events.ADDED if self.is_reused else events.GRADIENT
        self._remember_gradient(grad)
        self.is_reused, self.is_zero = False, not may_be_nonzero(grad)
        return what

    def compare_weight(self, parameter: Any, value: float | None, in_step: bool = False) -> bool:
        """Return whether the weight has changed since the last look, and add an event if it has.

        :param value: the norm of the weight's sample, if it was taken.
        """
        before, self.weight_norm = self.weight_norm, value
        version, self.weight_version = self.weight_version, parameter._version
        compared = value is not None and before is not None and value == value
        changed = value != before if compared else version != self.weight_version
        if not changed:
            return False
        if in_step:
            self.add_event(events.MOVED_IN_STEP)
        elif self.is_perturbed and _is_near(value, self.first_weight_norm):
            self.is_perturbed = False
            self.add_event(events.RESTORED)
        else:
            self.is_perturbed = self.first_weight_norm is not None
            self.add_event(events.WRITTEN)
        return True

    def accept_other_step(self, parameter: Any, value: float | None) -> None:
        """Take over the weight and gradient after the step of another optimizer, without an event."""
        self.weight_norm, self.weight_version = value, parameter._version
        self._remember_gradient(parameter.grad)

    def _remember_gradient(self, grad: Any) -> None:
        """Remember a gradient and its version counter, to see later whether it was changed."""
        self.grad = private.tensor_ref(grad) if grad is not None else None
        self.grad_version = grad._version if grad is not None else 0


def _is_near(value: float | None, other: float | None) -> bool:
    """Return whether two norms are equal but for rounding; false if one is not known."""
    if value is None or other is None:
        return False
    return abs(value - other) <= thresholds.RESTORED_WEIGHT_TOLERANCE * max(abs(value), abs(other))


def can_account(parameter: object) -> bool:
    """Return whether a parameter and its gradient have identities and versions that can be read."""
    return (
        isinstance(parameter, torch.Tensor)
        and parameter.is_leaf
        and parameter.layout is torch.strided
        and not parameter.is_meta
        and not parameter.is_inference()
    )


def may_be_nonzero(grad: torch.Tensor) -> bool:
    """Return whether a gradient may have nonzero elements, without waiting for an accelerator: there it may.

    A few elements decide for most gradients. Otherwise the smallest and the largest element do, which takes a tenth of
    the time of ``torch.any``.
    """
    here = private.local(grad)
    if here is None or not private.is_readable(here) or not here.is_cpu or here.is_nested:
        return True
    if here.numel() == 0:
        return False
    here = here.detach()
    count = min(MAX_ELEMENTS_READ_AT_FIRST, here.numel())
    if here.is_contiguous() and any(here.as_strided((count,), (here.numel() // count,)).tolist()):
        return True
    if not is_float(here) or here.is_complex():
        return bool(here.any())
    low, high = here.aminmax()
    return not (bool(low == 0) and bool(high == 0))


def sample_norms(parameters: Sequence[torch.Tensor]) -> list[float | None]:
    """Return the norm of a sample of each parameter's elements, at even distances; ``None`` if it cannot be read.

    Equal norms do not prove equal values; an update changes the norm of 4,096 elements except for rare rounding.
    """
    found: list[float | None] = [None] * len(parameters)
    readable = [i for i, p in enumerate(parameters) if _is_readable(p)]
    samples = []
    for i in readable:
        flat = parameters[i].detach().reshape(-1)
        samples.append(spread(flat, MAX_SAMPLED_ELEMENTS))
    if samples:
        for i, norm in zip(readable, torch._foreach_norm(samples, 2, torch.float64), strict=True):
            found[i] = float(norm)
    return found


def _is_readable(p: torch.Tensor) -> bool:
    """Return whether the values of a parameter can be sampled: real floats on the CPU, and cheap to read."""
    if not private.is_readable(p) or not p.is_cpu or not is_float(p) or p.is_complex():
        return False
    return bool(p.numel() > 0 and (p.is_contiguous() or p.numel() <= MAX_COPIED_ELEMENTS))
