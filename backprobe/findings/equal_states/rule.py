"""Rule for bootstrapped targets that are computed from the same states as the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import EqualStates, Finding
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "next-states-equal",
        "warning",
        "the next states of a batch of transitions are bit for bit equal to its states",
        after="mask-inverted",
        questions=(Question.NOT_LEARNING, Question.LEARNS_BADLY),
        points_to="the lines that make the two batches, and methods that return an array they overwrite",
    )
)
def equal_states(trace: Trace) -> list[Finding]:
    """Report the first prediction of each module whose bootstrapped target is computed from equal values."""
    by_module = {seen.module: seen for seen in reversed(trace.facts.of(EqualStates))}
    return [_finding(seen) for seen in by_module.values()]


def _finding(seen: EqualStates) -> Finding:
    """Return the finding for batches of equal states, at the line that makes the batch of next states."""
    (state, following), (called, target) = seen.made, seen.called
    made = (("made", following), ("made", state if state != following else None))
    # Several lines may be the reason; a single one is named.
    returned = seen.returned[0] if len(seen.returned) == 1 else None
    stored = seen.stored[0] if len(seen.stored) == 1 else None
    advice = "As a rule, transitions hold references to one array that the simulator overwrites. Store copies: "
    advice += "view.copy() for NumPy, view.clone() for tensors."
    return Finding(
        kind="next-states-equal",
        severity="warning",
        title=f"in all {seen.steps} batches that were compared, the next states are equal to the states bit for bit",
        confidence="likely",
        module=seen.module,
        step=seen.first,
        sites=sites_of(
            *made,
            ("called", target),
            ("called", called if called != target else None),
            ("returned", returned),
            ("stored", stored),
        ),
        evidence={
            "rows": seen.rows,
            "steps": seen.steps,
            "compared": f"{seen.compared.file}:{seen.compared.line}" if seen.compared is not None else None,
            "candidates": [f"{site.file}:{site.line}" for site in (*seen.returned, *seen.stored)],
        },
        advice=advice,
    )
