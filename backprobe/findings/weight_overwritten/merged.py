"""Finds low-rank updates that are added to a frozen weight and not subtracted before training goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few, listed, plural
from ...records import Finding, MergedUpdates, Site
from ..rules import candidates, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


def merged_updates(trace: Trace) -> list[Finding]:
    """Return findings for frozen weights to which updates are added again and again, one for each line."""
    groups: dict[Site | None, list[MergedUpdates]] = {}
    for seen in trace.facts.of(MergedUpdates):
        groups.setdefault(seen.lines[0] if seen.lines else None, []).append(seen)
    return [_finding(group) for group in groups.values()]


def _finding(group: list[MergedUpdates]) -> Finding:
    """Return the finding for frozen weights that one line changes."""
    first = max(group, key=lambda one: one.count)
    names = tuple(one.parameter for one in group)
    factors = listed(first.factors)
    several = f"products such as that of {factors} are added to them"
    added = several if len(group) > 1 else f"the product of {factors} is added to it"
    called = first.called
    is_evaluation = called is not None and ".eval(" in called.text
    return Finding(
        kind="weight-overwritten",
        severity="warning",
        title=f"{few(names)} {plural(names, 'is', 'are')} frozen, and {added} {counted(first.count, 'time')} and never "
        "subtracted before training goes on",
        confidence="likely",
        step=min(one.step for one in group),
        parameters=names,
        sites=sites_of(
            *(("mutated", site) for site in first.lines[:1]),
            ("evaluated" if is_evaluation else "called", called),
            ("stepped", first.stepped),
        ),
        evidence={
            "factors": list(first.factors),
            "merges": first.count,
            "first_step": first.step,
            "last_step": first.last,
            **candidates(first.lines if not first.exact else ()),
        },
        advice="Subtract the same product when the model goes back to training, before a step changes the factors. Or "
        "keep a copy of the weight and restore it, or evaluate a merged copy of the model.",
    )
