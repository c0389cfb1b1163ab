"""Rule for terms of a loss that subtract a value from itself and give no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import CancellingDifference, Finding, Site
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "gradient-cancels",
        "warning",
        "a loss compares a value with itself, with a graph on both sides: the gradients cancel",
        rank=LEARNING + 28,
        questions=(Question.NOT_LEARNING, Question.LEARNS_BADLY),
        points_to="the line that computes the value again, and the comparison",
    )
)
def cancelling_differences(trace: Trace) -> list[Finding]:
    """Report terms of a loss that compare a value with itself: one finding for each value, whatever the number of
    terms.
    """
    by_value: dict[Site | None, list[CancellingDifference]] = {}
    for seen in trace.facts.of(CancellingDifference):
        by_value.setdefault(seen.made or seen.site, []).append(seen)
    return [_finding(made, some) for made, some in by_value.items()]


def _finding(made: Site | None, some: list[CancellingDifference]) -> Finding:
    """Return the finding for loss terms that compare one value with itself.

    :param made: the line that computes the value; ``None`` if unknown.
    :param some: the terms, at least one.
    """
    first = some[0]
    sites = dict.fromkeys((made, *(one.site for one in some)))
    again = first.sides[first.again] if _is_short(first) else ""
    return Finding(
        kind="gradient-cancels",
        severity="warning",
        title=f"{_what(first)} in all {first.steps} observed steps: both sides are computed with a graph from the "
        "same parameters, so the gradient of this term cancels",
        confidence="likely",
        step=first.step,
        sites=sites_of(*(("cause", site) for site in sites)),
        evidence={"op": first.op, "steps": first.steps},
        advice=f"Compute {again or 'the old or reference side'} once, before the updates and under torch.no_grad(), "
        "and keep it; or detach it with .detach(). If it is meant to come from another model, or from the weights "
        "before the training, compute it from a copy of those (copy.deepcopy).",
    )


#: Maximum number of characters of both sides that a title has room for.
MAX_CHARACTERS = 80


def _is_short(seen: CancellingDifference) -> bool:
    """Return whether the source texts of both sides are known and short enough for a title."""
    return all(seen.sides) and sum(map(len, seen.sides)) <= MAX_CHARACTERS


def _what(seen: CancellingDifference) -> str:
    """Return the first words of the title, such as ``a - b is 0``: the compared values if short, otherwise the
    operation.
    """
    (one, other), is_short = seen.sides, _is_short(seen)
    if seen.op in ("sub", "rsub", "div"):
        number, sign, noun = (1, "/", "a quotient") if seen.op == "div" else (0, "-", "a difference")
        return f"{one} {sign} {other} is {number}" if is_short else f"{noun} of two tensors is {number}"
    if is_short:
        return f"{seen.op} compares {one} and {other}, which are the same"
    return f"{seen.op} compares two tensors that are the same"
