"""The rule for parts of a parameter that never learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few, plural
from ...records import Finding, PaddingRowUsed
from ..rules import MEANT, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "part-never-learns",
        "info",
        "an embedding is looked up by single ids, and one of them is its padding row, which gets no gradient",
        rank=MEANT + 20,
        questions=(Question.NOT_LEARNING,),
        points_to="`padding_idx=0` with ids that begin at 0",
    )
)
def part_never_learns(trace: Trace) -> list[Finding]:
    return [_finding(seen) for seen in trace.facts.of(PaddingRowUsed)]


def _finding(seen: PaddingRowUsed) -> Finding:
    verb = plural(seen.parameters, "gets", "get")
    return Finding(
        kind="part-never-learns",
        severity="info",
        title=f"row {seen.row} of {few(seen.parameters)} {verb} no gradient because of padding_idx={seen.row}, and up "
        f"to {seen.share:.1%} of the lookups, which are of single ids, use it",
        confidence="likely",
        step=seen.step,
        parameters=seen.parameters,
        sites=sites_of(*(("defined", site) for site in seen.sites)),
        evidence={"row": seen.row, "share": round(seen.share, 4)},
        advice=f"If {seen.row} is the id of something real, leave padding_idx out or let ids begin after it. If it "
        "stands for a missing value, nothing is wrong.",
    )
