"""Rule for frozen parts of a model that are put back into training mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted, few, plural
from ...records import Finding, FrozenInTraining
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "frozen-in-training-mode",
        "warning",
        "a frozen part of a model that was in evaluation mode is in training mode: a parent's `train()` switched it",
        rank=LEARNING + 23,
        questions=(Question.LEARNS_BADLY,),
        points_to="the `train()` of a model that contains the frozen part",
    ),
    silences=("frozen-buffer-changes",),
)
def frozen_in_training_mode(trace: Trace) -> list[Finding]:
    """Report frozen parts that were in evaluation mode, or on which the script calls `eval()`, and that are in training
    mode.
    """
    return [_finding(seen) for seen in trace.facts.of(FrozenInTraining) if seen.evaluation or seen.evaluated]


def _finding(seen: FrozenInTraining) -> Finding:
    """Return the finding for a frozen part in training mode; only information if it has no normalisation layers."""
    parts = tuple(one or seen.class_name for one in (seen.part, *seen.others))
    if seen.evaluation:
        before = f"it was in evaluation mode in {counted(seen.evaluation, 'step')} before"
    else:
        before = "although the script calls eval() on it"
    causes = seen.switched or seen.frozen
    frozen = [("frozen", site) for site in seen.frozen if site not in causes]
    return Finding(
        kind="frozen-in-training-mode",
        severity="warning" if seen.norms else "info",
        title=f"{few(parts, 2)} {plural(parts, 'is', 'are')} frozen, but in training mode since step {seen.since} "
        f"({before}): {_effects(seen)}",
        confidence="likely",
        module=seen.part or None,
        step=seen.since,
        sites=sites_of(
            *(("cause", site) for site in causes),
            *(("evaluated", site) for site in seen.evaluated[:1]),
            *frozen,
            ("called", seen.called),
        ),
        evidence={
            "steps": _steps(seen),
            "evaluation_steps": seen.evaluation,
            "norms": seen.norms,
            "moved": round(seen.moved, 3),
            "dropouts": seen.dropouts,
            **candidates(causes),
        },
        advice=f"train() of a model switches all of its parts. Call {parts[0]}.eval() after each train(), or override "
        "train() of the model so that it leaves frozen parts in evaluation mode.",
    )


def _steps(seen: FrozenInTraining) -> int:
    """Return the number of steps during which the part was in training mode."""
    return seen.last - seen.since + 1


def _effects(seen: FrozenInTraining) -> str:
    """Return what training mode does to the part, in words for the title: normalisation by batch statistics, and
    dropout.
    """
    found = []
    if seen.norms:
        layers = counted(seen.norms, f"{seen.norm_class} layer")
        changed = (
            f"moved by up to {seen.moved:.1f} standard deviations"
            if seen.moved >= thresholds.FROZEN_MODE_MIN_SHOWN_MOVE
            else "were updated"
        )
        found.append(
            f"{layers} {'normalises' if seen.norms == 1 else 'normalise'} by the statistics of each batch, and the "
            f"running statistics {changed} in {counted(_steps(seen), 'step')}"
        )
    if seen.dropouts:
        found.append(f"dropout in {counted(seen.dropouts, 'layer')} makes the outputs random")
    return "; ".join(found)
