"""Rule for parameters and gradients that keep each other alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, FindingSite, GradientCycle
from ..rules import MEMORY, Kind, Question, rule

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "reference-cycle",
        "warning",
        "parameters and gradients keep each other alive",
        rank=MEMORY + 10,
        questions=(Question.MEMORY,),
        points_to="the backward call that made the cycle",
    )
)
def cycles(trace: Trace) -> list[Finding]:
    """Report backward calls with `create_graph=True` after which parameters and their gradients keep each
    other alive.
    """
    return [
        Finding(
            kind="reference-cycle",
            severity="warning",
            title="backward(create_graph=True) left gradients that have a graph of their own: parameter and gradient "
            "keep each other alive",
            confidence="certain",
            sites=(FindingSite("held", seen.site),),
            evidence={"parameters": list(seen.parameters)[:20]},
            parameters=seen.parameters,
            advice="Use torch.autograd.grad(loss, parameters, create_graph=True), which fills no .grad; or set .grad "
            "to None when the step is over (zero_grad(set_to_none=True)).",
        )
        for seen in trace.facts.of(GradientCycle)
        if seen.site is not None
    ]
