"""Rules for gradients that an optimizer uses more than once or never: missing or misplaced calls of a training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, GradientUse
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: Title and advice by reason.
_UNUSED = {
    "cleared": (
        "{optimizer} finds no gradients when it steps{since}: what backward() gives to its parameters is cleared "
        "before",
        "Clear gradients before backward(), or after step(): zero_grad(), backward(), step(), in this order.",
    ),
    "unused": (
        "backward() gives gradients, and {optimizer}, which was made from these parameters, never steps: nothing is "
        "trained",
        "Call {optimizer}'s step() after backward(), and zero_grad() once in each step.",
    ),
}


@rule(
    Kind(
        "gradient-not-cleared",
        "warning",
        "an optimizer uses the gradients of earlier steps again: the script does not clear them",
        rank=LEARNING + 5,
        questions=(Question.LEARNS_BADLY,),
        points_to="a missing `zero_grad`",
    )
)
def not_cleared(trace: Trace) -> list[Finding]:
    return [
        Finding(
            kind="gradient-not-cleared",
            severity="warning",
            title=f"{seen.optimizer} steps with gradients that hold those of earlier steps, from step {seen.step} on: "
            "nobody clears them, and backward() adds to what is there",
            confidence="certain",
            step=seen.step,
            sites=sites_of(("stepped", seen.stepped), ("backward", seen.backward), ("optimizer", seen.made)),
            evidence={"optimizer": seen.optimizer},
            advice=f"Call zero_grad() of this {seen.optimizer} once in each step: after step(), or before the first "
            "backward() of the next. To add up over several batches, step only after the last of them.",
        )
        for seen in trace.facts.of(GradientUse)
        if seen.how == "again"
    ]


@rule(
    Kind(
        "gradient-not-used",
        "warning",
        "backward calls give gradients, and the optimizer never gets to see them",
        rank=LEARNING + 6,
        questions=(Question.NOT_LEARNING,),
        points_to="cleared before the step, or no step at all",
    )
)
def not_used(trace: Trace) -> list[Finding]:
    found = []
    for seen in trace.facts.of(GradientUse):
        if seen.how not in _UNUSED:
            continue
        since = f", from step {seen.step} on" if seen.step else ""
        title, advice = (text.format(optimizer=seen.optimizer, since=since) for text in _UNUSED[seen.how])
        found.append(
            Finding(
                kind="gradient-not-used",
                severity="warning",
                title=title,
                confidence="certain" if seen.how == "cleared" else "likely",
                step=seen.step or None,
                sites=sites_of(
                    ("stepped", seen.stepped),
                    ("cleared", seen.cleared),
                    ("backward", seen.backward),
                    ("optimizer", seen.made),
                ),
                evidence={"optimizer": seen.optimizer, "reason": seen.how},
                advice=advice,
            )
        )
    return found
