"""The rule for steps with gradients that still have the factor of a ``GradScaler``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...records import Finding, ScaledGradients
from ..rules import VALUES, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "scaled-gradient-used",
        "warning",
        "an optimizer steps with gradients that still have the factor of a `GradScaler`",
        rank=VALUES - 2,  # an error if values become non-finite because of it
        questions=(Question.LEARNS_BADLY, Question.FADES_OR_GROWS),
        points_to="the step that bypasses the scaler",
    ),
    silences=("exploding-gradient", "update-too-large", "loss-spike", "divergence-ahead"),
)
def scaled_gradients(trace: Trace) -> list[Finding]:
    """Report optimizers that step with gradients from which the factor of a `GradScaler` was not divided out."""
    return [_finding(seen, trace) for seen in trace.facts.of(ScaledGradients)]


def _finding(seen: ScaledGradients, trace: Trace) -> Finding:
    """Return the finding for an optimizer that used gradients still multiplied by a scaler's factor.

    It is an error if a later loss is not finite.
    """
    losses = (row.loss for row in trace.step_rows(seen.step) if row.loss is not None)
    return Finding(
        kind="scaled-gradient-used",
        severity="error" if not all(map(math.isfinite, losses)) else "warning",
        title=f"{seen.optimizer} steps with gradients that are {seen.scale:,g} times too large, from step "
        f"{seen.step} on: a GradScaler multiplied the loss, and nothing divides its factor out",
        confidence="certain",
        step=seen.step,
        sites=sites_of(("cause", seen.stepped), ("failed", seen.backward), ("optimizer", seen.made)),
        evidence={"optimizer": seen.optimizer, "scale": seen.scale, "steps": seen.steps},
        advice=f"Replace the step of {seen.optimizer} by scaler.step(optimizer) and scaler.update(): they divide the "
        "factor out, and skip steps with Inf or NaN. bfloat16 and float32 need no scaler: call backward() on the loss.",
    )
