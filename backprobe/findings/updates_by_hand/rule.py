"""Rule for updates by hand that go in the wrong direction."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import number
from ...records import ClimbingUpdates, Finding
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "update-climbs",
        "warning",
        "a script without an optimizer adds the gradient to the weights, and its loss rises",
        rank=LEARNING + 22,
        questions=(Question.NOT_LEARNING,),
        points_to="the line of the update",
    )
)
def update_climbs(trace: Trace) -> list[Finding]:
    """Report updates by hand that add the gradient instead of subtracting it, if the loss rises over the run."""
    losses = [row.loss for row in trace.step_rows() if row.loss is not None and row.calls]
    quarter = len(losses) // 4
    first, last = losses[:quarter], losses[len(losses) - quarter :]
    if len(losses) < thresholds.HAND_UPDATE_MIN_LOSSES or not _rises(first, last):
        return []
    order = {parameter.name: at for at, parameter in enumerate(trace.parameters)}
    found = trace.facts.of(ClimbingUpdates)
    names = [tuple(sorted(one.parameters, key=lambda name: order.get(name, 0))) for one in found]
    return [_finding(one, its, fmean(first), fmean(last)) for one, its in zip(found, names, strict=True)]


def _rises(first: Sequence[float], last: Sequence[float]) -> bool:
    """Return whether nearly all of the last losses are higher than nearly all of the first, or not finite."""
    pairs = [late > early or not isfinite(late) for early in first for late in last]
    return all(map(isfinite, first)) and sum(pairs) >= thresholds.HAND_UPDATE_MIN_HIGHER_SHARE * len(pairs)


def _finding(seen: ClimbingUpdates, names: tuple[str, ...], first: float, last: float) -> Finding:
    """Return the finding for a line that adds the gradient to weights, so that the loss rises.

    :param first: the mean loss of the first quarter of the steps; `last`: of the last quarter.
    """
    return Finding(
        kind="update-climbs",
        severity="warning",
        title=f"the updates by hand add {number(seen.rate)} times the gradient to the weights, which raises the loss: "
        f"from {number(first)} to {number(last)} (means of the first and the last quarter of the steps)",
        confidence="likely",
        parameters=names,
        sites=sites_of(("stepped", seen.updated), ("backward", seen.backward)),
        evidence={"updates": seen.updates, "rate": seen.rate, "loss": seen.loss, "first": first, "last": last},
        advice="Subtract it: p -= lr * p.grad. The gradient points to where the loss rises. If the loss is to rise, "
        "call backward() of its negative and subtract the gradient, so that readers see it.",
    )
