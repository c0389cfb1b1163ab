"""Rule for custom functions whose backward ignores the gradients that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few
from ...records import Finding, IgnoredGradient
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "gradient-ignored",
        "error",
        "a custom backward never reads the gradient that it is given",
        after="gradient-overwritten",
        questions=(Question.SILENTLY_WRONG, Question.LEARNS_BADLY),
        points_to="the line that returns the gradient",
        diverges=True,
    ),
    silenced_by=("wrong-backward",),
)
def ignored_gradients(trace: Trace) -> list[Finding]:
    """Report custom functions whose backward never reads its incoming gradient, in the order of their steps."""
    return [_finding(seen) for seen in sorted(trace.facts.of(IgnoredGradient), key=lambda one: one.step)]


def _finding(seen: IgnoredGradient) -> Finding:
    """Return the finding for a custom function whose backward ignores the gradient that it gets, with the parameters
    behind it.
    """
    name, names = seen.node.removesuffix("Backward"), seen.parameters
    wrong = f"the gradients of {few(names)} do not depend on the loss after it" if names else "its result is wrong"
    return Finding(
        kind="gradient-ignored",
        severity="error",
        title=f"the backward of {name} never reads the gradient that it is given, which is not one: {wrong}",
        confidence="certain",
        module=seen.module,
        node=seen.node,
        parameters=names,
        step=seen.step,
        sites=sites_of(("backward", seen.returned), ("applied", seen.applied), ("failed", seen.backward)),
        advice="Multiply what backward() returns by the incoming gradient: it has the signs and factors of all that "
        "comes after the function, such as the mean of a loss, its weight, and the factor of a GradScaler.",
    )
