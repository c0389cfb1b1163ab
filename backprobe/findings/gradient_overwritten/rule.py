"""The rule for gradients that a custom function or a hook changes in place, while another node gets the same tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few
from ...records import Finding, GradientOverwritten
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "gradient-overwritten",
        "error",
        "a custom backward or a hook writes in place to a gradient that another operation gets too",
        after="silent-mutation",
        questions=(Question.SILENTLY_WRONG, Question.LEARNS_BADLY),
        points_to="the line that writes to the gradient, and the operation that gave it to two others",
        diverges=True,
    )
)
def gradients_overwritten(trace: Trace) -> list[Finding]:
    """Report custom backwards and hooks that write in place to a gradient that another node gets too.

    Each is reported once, with the parameters whose gradients go through the other node.
    """
    return [_finding(seen) for seen in sorted(trace.facts.of(GradientOverwritten), key=lambda one: one.step)]


def _finding(seen: GradientOverwritten) -> Finding:
    """Return the finding for one custom backward or hook that writes in place to a gradient that another
    node gets too.
    """
    is_hook = seen.by == "hook"
    who = f"a hook on the result of {seen.op}" if is_hook else f"the backward of {seen.node.removesuffix('Backward')}"
    names = seen.parameters
    wrong = f"the gradients of {few(names)} are wrong" if names else "what is computed from it is wrong"
    return Finding(
        kind="gradient-overwritten",
        severity="error",
        title=f"{who} writes in place to the gradient that it gets, which {seen.giver} gives to two operations: "
        f"{wrong}",
        confidence="certain",
        module=seen.module,
        node=seen.node,
        parameters=names,
        step=seen.step,
        sites=sites_of(
            ("mutated", seen.site),
            ("hook" if is_hook else "applied", seen.made),
            ("shared", seen.shared if seen.shared != seen.made else None),
            ("failed", seen.failed),
        ),
        evidence={"by": seen.by, "giver": seen.giver},
        advice="Return a new tensor and do not change the incoming one: write grad * factor instead of "
        "grad.mul_(factor), and call grad.clone() before you write to parts of it.",
    )
