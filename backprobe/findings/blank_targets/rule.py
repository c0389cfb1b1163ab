"""The rule for targets of a CTC loss that are its blank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import BlankTargets, Finding
from ..relations.sources import first_of
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "blank-in-targets",
        "warning",
        "targets of `ctc_loss` are its blank: the class stands for a symbol, and for nothing between symbols",
        rank=LEARNING + 32,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that computes the loss",
    )
)
def blank_in_targets(trace: Trace) -> list[Finding]:
    """Report losses of `ctc_loss` whose targets contain the class that the loss uses as its blank."""
    return [_finding(trace, seen) for seen in trace.facts.of(BlankTargets)]


def _finding(trace: Trace, seen: BlankTargets) -> Finding:
    """Return the finding for `ctc_loss` targets that are its blank, at the line of the first such loss in
    their step.
    """
    call, loss = first_of(trace.backwards, "ctc_loss", seen.step)
    return Finding(
        kind="blank-in-targets",
        severity="warning",
        title=f"{seen.count:,} of {seen.targets:,} targets of ctc_loss are {seen.blank}, its blank: the model cannot "
        "spell this symbol, and the loss can be negative",
        confidence="certain",
        module=(loss.module or None) if loss else None,
        node=loss.name if loss else None,
        step=seen.step,
        sites=sites_of(("cause", loss.site if loss else None), ("failed", call.site if call else None)),
        evidence={"blank": seen.blank, "count": seen.count, "targets": seen.targets, "calls": seen.calls},
        advice=f"Keep {seen.blank} for the blank: number the symbols from {seen.blank + 1} on, or pass the number of a "
        "class of its own as blank=, and give the last layer one class more than there are symbols.",
    )
