"""Rule for layers whose units are copies of one another and get equal gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few, plural
from ...records import EqualUnits, Finding, Site
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "units-never-differ",
        "warning",
        "all units of a layer have equal weights and get equal gradients: the layer is worth one unit",
        rank=LEARNING + 25,
        questions=(Question.NOT_LEARNING, Question.LEARNS_BADLY),
        points_to="the line that initialises the weight",
    )
)
def units_never_differ(trace: Trace) -> list[Finding]:
    """Report layers whose units (rows of the weight) have equal values and gradients: one finding for each initialising
    line.
    """
    groups: dict[tuple[Site, ...], list[EqualUnits]] = {}
    for seen in trace.facts.of(EqualUnits):
        groups.setdefault(seen.given, []).append(seen)
    return [_finding(group) for group in groups.values()]


def _finding(group: list[EqualUnits]) -> Finding:
    """Return the finding for layers whose units stay equal and that the same lines initialise."""
    first = group[0]
    names = tuple(one.parameter for one in group)
    value = first.value if len({one.value for one in group}) == 1 else None
    start = f" All elements began as {value:g}." if value is not None else ""
    rows = f"the {first.rows} rows" if len(group) == 1 else "the rows"
    of = f"{plural(names, 'each of its', 'the')} {first.blocks} blocks of " if first.blocks > 1 else ""
    return Finding(
        kind="units-never-differ",
        severity="warning",
        title=f"{rows} of {of}{few(names)} are equal in all {first.looks} examined steps, from step "
        f"{first.first} to {first.last}, and get equal gradients: the units stay copies of one, and add nothing to it",
        module=first.parameter.rpartition(".")[0] or None,
        confidence="certain" if all(one.exact and (one.observed or not one.given) for one in group) else "likely",
        step=first.first,
        parameters=names,
        sites=sites_of(*(("cause", site) for site in first.given[:3])),
        evidence={
            "rows": first.rows,
            "looks": first.looks,
            "last": first.last,
            **({"initial_value": value} if value is not None else {}),
            **({} if first.observed else candidates(first.given)),
        },
        advice=f"Initialise the weight with random values (nn.init.xavier_uniform_, or what the layer does itself): "
        f"equal units get equal updates for ever.{start}",
    )
