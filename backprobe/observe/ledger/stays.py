"""Finds why a step left a weight as it was."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ... import thresholds
from ...records import LedgerStay
from ...records import ledger as events
from ...torch_internals import private
from ...torch_internals.gradient_clipping import ClipCall
from ...torch_internals.norms import quick_norm
from .account import Account
from .changes import MeasuredChange
from .formulas import read_number

if TYPE_CHECKING:
    import torch

#: Most parameters that are measured again in the next step because a step left them as they were, and most such steps
#: of an optimizer.
MAX_MEASURED_AGAIN, MAX_STEPS_MEASURED_AGAIN = 8, 64


class ClippedNorms:
    """The norms that clipping has found and left, by the id of the parameter, since its optimizer stepped last."""

    def __init__(self) -> None:
        self._norms_by_id: dict[int, tuple[float, float]] = {}

    def add(self, call: ClipCall, parameters: Iterable[object]) -> None:
        """Note the norms before and after a call that clips by norm, or by a value of zero."""
        bound = read_number(call.bound)
        found = read_number(call.total_norm) if call.total_norm is not None else None
        if bound is None or not bound >= 0:
            return
        if found is None:
            if call.total_norm is not None or bound > 0:
                return
            found = math.sqrt(sum(float(quick_norm(grad)) ** 2 for grad in call.grads if _is_readable_now(grad)))
        for p in parameters:
            before, after = self._norms_by_id.get(id(p), (found, found))
            self._norms_by_id[id(p)] = before, min(after, found, bound)

    def pop(self, parameter: object) -> tuple[float, float] | None:
        """Return the norms before and after the clipping of a parameter, and forget them."""
        return self._norms_by_id.pop(id(parameter), None)

    def clear(self) -> None:
        """Forget all norms."""
        self._norms_by_id.clear()


def _is_readable_now(grad: Any) -> bool:
    """Return whether a gradient can be read without waiting."""
    return private.is_readable(grad) and grad.is_cpu and grad.numel() > 0


@dataclass
class Stays:
    """Steps that left a weight as it was, by cause."""

    by_cause: dict[str, LedgerStay] = field(default_factory=dict)

    def add(self, stay: LedgerStay) -> None:
        """Add a step that left the weight as it was, to those with the same cause."""
        known = self.by_cause.get(stay.cause)
        self.by_cause[stay.cause] = stay if known is None else merged_stay(known, stay)

    @property
    def key(self) -> tuple[tuple[str, int], ...]:
        """Return the causes and how often each was found: what must be equal for parameters to share a row."""
        return tuple((cause, stay.periods) for cause, stay in sorted(self.by_cause.items()))


def merged_stay(stay: LedgerStay, other: LedgerStay, same_steps: bool = False) -> LedgerStay:
    """Return a record that joins two records of the same cause.

    :param same_steps: of the same steps, for two parameters.
    """
    numbers = [n for n in (stay.largest, other.largest) if n is not None]
    periods = stay.periods if same_steps else stay.periods + other.periods
    return LedgerStay(stay.cause, periods, max(numbers, default=None), other.norm_before, other.norm_after)


def explain_stay(
    account: Account,
    parameter: torch.Tensor,
    change: MeasuredChange | None,
    has_zero_rate: bool,
    clip: tuple[float, float] | None,
) -> LedgerStay:
    """Return why the step that has just ended left a weight as it was.

    :param change: the measured change of the weight, if any. ``has_zero_rate``: the learning rate was zero.
    :param clip: the norms before and after clipping in this period.
    """
    if account.grad is None:
        return LedgerStay(events.NO_GRADIENT if parameter.requires_grad else events.FROZEN, 1)
    if has_zero_rate:
        return LedgerStay(events.NO_RATE, 1)
    before, after = clip or (0.0, 0.0)
    if account.is_zero:
        clipped = before > 0 and after <= thresholds.CLIPPED_TO_NOTHING_SHARE * before
        return LedgerStay(events.CLIPPED, 1, None, before, after) if clipped else LedgerStay(events.ZERO_GRADIENT, 1)
    if change is None or not change.rounds_away:
        return LedgerStay(events.NOT_KNOWN, 1)
    if 0 < after < before and change.largest_of_gradient * before >= after:
        return LedgerStay(events.CLIPPED, 1, change.largest, before, after)
    return LedgerStay(events.ROUNDED, 1, change.largest)


def ids_with_zero_rate(optimizer: torch.optim.Optimizer | None) -> set[int]:
    """Return the ids of the parameters whose learning rate is zero."""
    groups = optimizer.param_groups if optimizer is not None else ()
    return {id(p) for group in groups if read_number(group.get("lr")) == 0 for p in group["params"]}
