"""Rule for assignments that should freeze parameters and do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few, plural
from ...records import Finding, FreezeAttempt
from ..rules import LEARNING, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "freeze-without-effect",
        "warning",
        "an assignment only makes a Python attribute, and the parameters that it should freeze are trained",
        rank=LEARNING + 15,
        questions=(Question.LEARNS_BADLY,),
        points_to="the assignment",
    )
)
def freeze_without_effect(trace: Trace) -> list[Finding]:
    """Report assignments such as `module.requires_grad = False` that freeze nothing: one finding for each attribute and
    line.
    """
    groups: dict[tuple[object, ...], list[FreezeAttempt]] = {}
    for seen in trace.facts.of(FreezeAttempt):
        groups.setdefault((seen.attribute, bool(seen.class_name), seen.lines), []).append(seen)
    return [_finding(group) for group in groups.values()]


def _finding(seen: list[FreezeAttempt]) -> Finding:
    """Return the finding for assignments of one attribute on one line, to one or several modules or parameters."""
    first = seen[0]
    names = tuple(dict.fromkeys(name for one in seen for name in one.parameters))
    owners = [one.owner or one.class_name for one in seen]
    what = "module" if first.class_name else "parameter"
    noun = what if len(owners) == 1 else f"{what}s"
    if first.class_name:
        why = f"a module has the method requires_grad_() for that; {few(names)} {plural(names, 'is', 'are')}"
    else:
        why = f"the attribute is called requires_grad; {plural(names, 'it is', 'they are')}"
    return Finding(
        kind="freeze-without-effect",
        severity="warning",
        title=f"{first.attribute} = False does not freeze the {noun} {few(owners)}: {why} still trained",
        confidence="likely",
        module=(first.owner if first.class_name else first.owner.rpartition(".")[0]) or None,
        parameters=names,
        step=first.step,
        sites=sites_of(*(("cause", site) for site in first.lines if len(first.lines) == 1)),
        evidence={"attribute": first.attribute, **candidates(first.lines if len(first.lines) > 1 else ())},
        advice="Call requires_grad_(False) on the module, or set requires_grad = False on each of its parameters().",
    )
