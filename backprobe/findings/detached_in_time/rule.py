"""The rule for hidden states of recurrent modules that are detached at every step of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import DetachedState, Finding
from ..rules import GRADIENTS_INVALID, LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "detached-in-time",
        "warning",
        "the hidden state of a recurrent module is detached at every step of a sequence: nothing is learned over time",
        rank=LEARNING + 36,
        questions=(Question.NOT_LEARNING, Question.LEARNS_BADLY),
        points_to="the line that detaches the state",
    ),
    silenced_by=(GRADIENTS_INVALID,),
)
def detached_in_time(trace: Trace) -> list[Finding]:
    """Report recurrent modules whose state is detached between all steps of time of a backward call."""
    return [_finding(seen) for seen in trace.facts.of(DetachedState)]


def _finding(seen: DetachedState) -> Finding:
    """Return the finding for a module whose state is detached at every step of time."""
    name = f"{seen.module} ({seen.name})" if seen.module else seen.name
    called = seen.called if seen.called != seen.detached else None
    return Finding(
        kind="detached-in-time",
        severity="warning",
        title=f"the hidden state of {name} is detached at each of {seen.pairs:,} steps of time within one backward "
        "call: no gradient passes from a step to the one before",
        confidence="certain",
        module=seen.module,
        step=seen.step,
        sites=sites_of(("cut", seen.detached or seen.called), ("called", called if seen.detached else None)),
        evidence={"steps_of_time": seen.pairs, "backward_calls": seen.backwards},
        advice="Pass the state on without detach() within a sequence. Detach it once between two backward calls: after "
        "the optimizer has stepped, or before the next chunk of a long sequence.",
    )
