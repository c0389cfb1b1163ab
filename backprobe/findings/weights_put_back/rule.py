"""Rule for weights that are put back between steps, so that the training before is lost."""

from __future__ import annotations

from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted
from ...records import Finding, WeightsPutBack
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "weights-put-back",
        "warning",
        "weights are put back between two steps, again and again, and the training before is lost",
        rank=LEARNING + 24,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that replaces the weights",
    )
)
def weights_put_back(trace: Trace) -> list[Finding]:
    """Report weights that are replaced between steps by earlier ones or an average, so that training is lost.

    Not if the loss is mostly better afterwards, as when a script takes bad steps back.
    """
    found = []
    for seen in trace.facts.of(WeightsPutBack):
        losses = _losses_around(trace, seen)
        if seen.how == "average" or not _is_rollback(losses):
            found.append(_finding(seen, losses))
    return found


def _finding(seen: WeightsPutBack, losses: list[tuple[float, float]]) -> Finding:
    """Return the finding for one optimizer whose weights are replaced.

    :param losses: the median loss before and after each replacement, as far as known.
    """
    apart = counted(seen.lost, "step")
    if seen.how == "same":
        title = (
            f"the weights that {seen.optimizer} trains are replaced {seen.count} times by {_origin(seen)}, each time "
            f"after {apart} of training, which are lost; the optimizer goes on with its state"
        )
        advice = (
            "Load the weights once, before the loop. If training is to begin anew each time, make a new optimizer too: "
            "the state of this one belongs to weights that are gone."
        )
    else:
        title = (
            f"the weights that {seen.optimizer} trains are overwritten {seen.count} times, each time undoing about "
            f"{seen.share:.0%} of the last {apart}: it looks as if an average of earlier weights is copied into the "
            "model and never swapped back"
        )
        advice = (
            "Keep a copy of the trained weights before the average is copied in, and copy them back after the "
            "evaluation; or evaluate a second model that holds the average."
        )
    evidence = {
        "optimizer": seen.optimizer,
        "replacements": seen.count,
        "replaced_before_steps": list(seen.replaced),
        "steps_lost_each": seen.lost,
        "steps": seen.steps,
    }
    if seen.how == "average":
        evidence["share_undone"] = round(seen.share, 3)
    if losses:
        evidence["loss_before"], evidence["loss_after"] = (median(values) for values in zip(*losses, strict=True))
    certain = seen.exact and len(seen.lines) == 1
    if not certain:
        evidence |= candidates(seen.lines)
    return Finding(
        kind="weights-put-back",
        severity="warning",
        title=title,
        confidence="certain" if certain else "likely",
        step=seen.step,
        parameters=seen.parameters,
        sites=sites_of(*(("mutated", site) for site in seen.lines), ("called", seen.called), ("stepped", seen.stepped)),
        evidence=evidence,
        advice=advice,
    )


def _origin(seen: WeightsPutBack) -> str:
    """Return from which step the weights are that replace the trained ones, in words."""
    if seen.since == 0:
        return "those of the beginning"
    return f"those of step {seen.since}" if 0 < seen.since < seen.step else "the same earlier ones"


def _losses_around(trace: Trace, seen: WeightsPutBack) -> list[tuple[float, float]]:
    """Return the median losses before and after each replacement, as far as they are known."""
    wanted = {
        step + i
        for step in seen.replaced
        for i in range(-thresholds.PUT_BACK_COMPARED_LOSSES, thresholds.PUT_BACK_COMPARED_LOSSES)
    }
    losses = {row.index: row.loss for row in trace.step_rows() if row.index in wanted and row.loss is not None}
    found = []
    for step in seen.replaced:
        before = [losses[i] for i in range(step - thresholds.PUT_BACK_COMPARED_LOSSES, step) if i in losses]
        after = [losses[i] for i in range(step, step + thresholds.PUT_BACK_COMPARED_LOSSES) if i in losses]
        if before and after:
            found.append((median(before), median(after)))
    return found


def _is_rollback(losses: list[tuple[float, float]]) -> bool:
    """Return whether the loss was better after most replacements: bad steps were taken back."""
    better = sum(after <= before or not isfinite(before) for before, after in losses)
    return bool(losses) and 2 * better > len(losses)
