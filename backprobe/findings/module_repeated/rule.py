"""Rule for modules that stand several times in a container since the script repeats a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few
from ...records import Finding, RepeatedModule
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "module-repeated",
        "warning",
        "a list that repeats one module puts the same parameters into several places of a container",
        rank=LEARNING + 33,
        questions=(Question.LEARNS_BADLY,),
        points_to="the `[layer] * n`",
    )
)
def module_repeated(trace: Trace) -> list[Finding]:
    """Report modules that a repeated list puts into several places of containers: one finding for each line."""
    groups: dict[tuple[object, ...], list[RepeatedModule]] = {}
    for seen in trace.facts.of(RepeatedModule):
        groups.setdefault((seen.lines, seen.module, seen.count, seen.registered), []).append(seen)
    return [_finding(group) for group in groups.values()]


def _finding(group: list[RepeatedModule]) -> Finding:
    """Return the finding for the containers that one line fills; only information if the line repeats a registered
    module.
    """
    first = group[0]
    containers = [one.container or f"the outermost {one.container_class}" for one in group]
    places = f"all {first.places} places" if first.count == first.places else f"{first.count} of {first.places} places"
    names = tuple(dict.fromkeys(name for one in group for name in one.parameters))
    tensors = counted(len(first.parameters), "parameter")
    return Finding(
        kind="module-repeated",
        severity="info" if first.registered else "warning",
        title=f"one {first.module} stands in {places} of {few(containers)}: they share its {tensors} "
        f"({first.elements:,} elements) and add up their gradients in them; {first.count} separate modules would have "
        f"{first.elements * first.count:,} elements",
        confidence="likely",
        module=first.container or None,
        parameters=names,
        step=first.step,
        sites=sites_of(*(("cause", site) for site in first.lines if len(first.lines) == 1)),
        evidence={
            "class": first.module,
            "count": first.count,
            "places": first.places,
            "elements": first.elements,
            **candidates(first.lines if len(first.lines) > 1 else ()),
        },
        advice="Repeating a list copies references, not modules. Make a new module for each place "
        f"([{first.module}(...) for _ in range({first.count})]), or use copy.deepcopy. If the places should share "
        "their weights, call one module several times: that says so.",
    )
