"""Rule for models that stay in evaluation mode while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import listed, plural
from ...records import Finding, LeftInEvaluation
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "left-in-evaluation-mode",
        "warning",
        "a model is trained in evaluation mode after it was trained in train mode: nothing switches it back",
        rank=LEARNING + 14,
        questions=(Question.LEARNS_BADLY,),
        points_to="the call of `eval()`",
    )
)
def left_in_evaluation_mode(trace: Trace) -> list[Finding]:
    """Report models that were trained in training mode and since an `eval()` are trained in evaluation mode."""
    return [
        Finding(
            kind="left-in-evaluation-mode",
            severity="warning",
            title=f"{seen.model} has been trained in evaluation mode since step {seen.since}: "
            f"{listed(seen.affected)} {plural(seen.affected, 'does', 'do')} not behave as in training mode",
            confidence="likely",
            step=seen.since,
            sites=sites_of(*(("cause", site) for site in seen.calls[:3])),
            evidence={"steps": seen.evaluation, "affected": list(seen.affected), **candidates(seen.calls)},
            advice="Call train() on the model after each evaluation, before the next training step.",
        )
        for seen in trace.facts.of(LeftInEvaluation)
    ]
