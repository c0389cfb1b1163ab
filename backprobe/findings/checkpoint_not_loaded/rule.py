"""The rule for state dicts none of whose names the model has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, few
from ...records import Finding, NothingLoaded
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "checkpoint-not-loaded",
        "warning",
        "a state dict was loaded with `strict=False`, and the model has none of its names: nothing was restored",
        after="state-not-copied",
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that loads",
    )
)
def checkpoint_not_loaded(trace: Trace) -> list[Finding]:
    """Report calls of `load_state_dict(strict=False)` that restored no tensor because no name matched."""
    return [_finding(seen) for seen in trace.facts.of(NothingLoaded)]


def _finding(seen: NothingLoaded) -> Finding:
    """Return the finding for a `load_state_dict(strict=False)` that restored nothing, since no name matched.

    If all names differ by a prefix, the advice says so.
    """
    names = f"its names begin with {seen.prefix!r}" if seen.in_state else f"the model's begin with {seen.prefix!r}"
    without = f", and without it {counted(seen.matching, 'name')} would fit" if seen.prefix else ""
    title = (
        f"loading a state dict into {seen.model} with strict=False restores nothing: none of its "
        f"{counted(seen.given, 'tensor')} has a name that the model knows"
    )
    if not seen.prefix:
        advice = "Compare both lists of names, and load with strict=True: it raises if they differ."
    elif seen.in_state:
        advice = (
            f"Take {seen.prefix!r} off the names before the load, or save the state of the wrapped model "
            "(model.module.state_dict()); then load with strict=True, which raises if names differ."
        )
    else:
        advice = (
            f"Load into the wrapped model (model.module.load_state_dict(state)), or put {seen.prefix!r} before the "
            "names; then load with strict=True, which raises if names differ."
        )
    return Finding(
        kind="checkpoint-not-loaded",
        severity="warning",
        title=f"{title} ({names}{without})" if seen.prefix else f"{title} ({few(seen.names)} for {few(seen.own)})",
        confidence="certain",
        step=seen.step,
        sites=sites_of(("cause", seen.loaded)),
        evidence={"names": list(seen.names), "own_names": list(seen.own), "prefix": seen.prefix, "loads": seen.loads},
        advice=advice,
    )
