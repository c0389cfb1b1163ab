"""Rule for optimizers that are made anew again and again over the same parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted
from ...records import Finding, NewOptimizers
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "optimizer-made-anew",
        "warning",
        "a new optimizer over the same parameters is made every few steps: its state starts at zero each time",
        rank=LEARNING + 21,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that makes the optimizer",
    )
)
def made_anew(trace: Trace) -> list[Finding]:
    """Report optimizers that are created again every few steps over the same parameters, so that their
    state is lost.
    """
    return [_finding(seen) for seen in trace.facts.of(NewOptimizers)]


def _finding(seen: NewOptimizers) -> Finding:
    """Return the finding for an optimizer that is created again and again; only information if each one does several
    steps.
    """
    name = seen.optimizer
    fewest = f"{seen.fewest} to " if seen.fewest < seen.most else ""
    least = "at least " if seen.is_least else ""
    lost = "its momentum starts" if name == "SGD" else "its running averages of gradients start"
    return Finding(
        kind="optimizer-made-anew",
        severity="warning" if seen.most <= thresholds.NEW_OPTIMIZER_MAX_STEPS_OF_WARNING else "info",
        title=f"{name} is made anew {least}{counted(seen.made, 'time')} over the same "
        f"{counted(seen.parameters, 'parameter')} "
        f"and does only {fewest}{counted(seen.most, 'step')} each time: {lost} at zero each time",
        confidence="likely" if seen.inferred else "certain",
        sites=sites_of(("optimizer", seen.made_at), ("stepped", seen.stepped)),
        evidence={
            "optimizer": name,
            "made": seen.made,
            "at_least": seen.is_least,
            "fewest_steps": seen.fewest,
            "most_steps": seen.most,
        },
        advice=f"Make {name} once, before the loop, and call only zero_grad() and step() in it; give it to functions "
        "as an argument. To change the learning rate, use a scheduler. If the optimizer must be made anew, give it the "
        "state: new.load_state_dict(old.state_dict()).",
    )
