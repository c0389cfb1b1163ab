"""The rule for hooks that pile up: registered again and again, and never removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few
from ...records import Finding, HooksPileUp
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "hooks-pile-up",
        "warning",
        "the same hook is registered on an object again and again, and never removed",
        rank=LEARNING + 11,
        questions=(Question.HOOKS, Question.LEARNS_BADLY),
        points_to="the line that registers the hook",
    )
)
def hooks_pile_up(trace: Trace) -> list[Finding]:
    """Report hooks that are registered on an object again and again and never removed."""
    return [_finding(seen) for seen in trace.facts.of(HooksPileUp)]


def _finding(seen: HooksPileUp) -> Finding:
    """Return the finding for a hook that is registered again and again.

    It is only information if the hooks hold different tensors and may each be meant.
    """
    others = f", and as many on {counted(len(seen.names) - 1, 'other')}" if len(seen.names) > 1 else ""
    return Finding(
        kind="hooks-pile-up",
        severity="info" if seen.varies else "warning",
        title=f"{seen.names[0]} has {seen.count} hooks {seen.function}{others}: the number has grown from step "
        f"{seen.first} to step {seen.last} and never fell, and all of them run",
        confidence="likely",
        step=seen.first,
        parameters=seen.names,
        sites=sites_of(("hook", seen.site)),
        evidence={"method": seen.method, "hooks": seen.count, "objects": few(seen.names), "last_step": seen.last},
        advice=f"Call {seen.method}() once, before the loop, or keep the handle that it returns and call its remove() "
        "before the next registration.",
    )
