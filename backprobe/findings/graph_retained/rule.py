"""The rule for graphs of earlier steps that stay alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, Retained
from ..rules import MEMORY, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "graph-retained",
        "warning",
        "graphs of earlier steps stay alive, and the line that keeps them",
        rank=MEMORY,
        questions=(Question.MEMORY,),
        points_to="the line that keeps them",
    )
)
def retained(trace: Trace) -> list[Finding]:
    """Report graphs of earlier steps, or of earlier backward calls in a step, that stay alive, and what holds them."""
    seen = trace.facts.one(Retained)
    if seen is None:
        return []
    name = f"{seen.holder} ({seen.how})" if seen.holder else seen.how
    return [
        Finding(
            kind="graph-retained",
            severity="warning",
            title=f"{name} makes each backward call of a step go through the graphs of those before it, which "
            f"retain_graph=True keeps: {seen.graphs} when we looked, and one more with each call"
            if seen.within
            else f"{name} keeps the graphs of earlier steps alive: {_how_many(seen)}",
            confidence="certain" if seen.site else "likely",
            module=seen.module,
            tensor=seen.holder or None,
            sites=sites_of(("held", seen.site), ("made", seen.made if seen.made != seen.site else None)),
            evidence={"holder": seen.holder, "held_in": seen.how, "graphs_alive": seen.graphs, **_since(seen)},
            advice="Detach what goes on from one backward call to the next (state.detach()), and leave out "
            "retain_graph=True; or add up the losses and call backward once."
            if seen.within
            else "Keep numbers, or tensors without their graph: loss.item(), tensor.detach(). Run evaluation under "
            "torch.no_grad().",
        )
    ]


def _how_many(seen: Retained) -> str:
    """Return how many graphs are alive, such as ``at least 27 of the 128 since step 2``, and whether the
    number grows.
    """
    if seen.steps > seen.graphs:
        more = ", and more with each step" if seen.grew else ""
        return f"at least {seen.graphs} of the {seen.steps} since step {seen.first}{more}"
    return f"{seen.graphs} when we looked" + (", and one more with each step" if seen.grew else "")


def _since(seen: Retained) -> dict[str, int]:
    """Return evidence about the oldest graph: its step and the number of steps since; empty if unknown."""
    return {} if seen.first is None else {"oldest_step": seen.first, "steps_since": seen.steps}
