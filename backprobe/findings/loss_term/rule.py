"""The rule for terms of a loss that have no graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import listed, op_in_text
from ...ops import info
from ...records import Finding, LostTerm
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "loss-term-without-graph",
        "warning",
        "a term of the loss depends on trained parameters and has no graph: it teaches nothing",
        rank=LEARNING + 2,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line where the term lost its graph",
    ),
    silenced_by=("none-grad", "grad-mode-disabled"),
)
def terms_without_graph(trace: Trace) -> list[Finding]:
    """Report terms of a loss that depend on trained parameters and whose graph was cut, with the line and
    the reason.
    """
    found = []
    for seen in trace.facts.of(LostTerm):
        names = seen.parameters
        why = _WHY.get(seen.how, f"{op_in_text(seen.how)} left the graph")
        if sign := info(seen.how).sign:
            why = f"a comparison ({sign}) has no derivative"
        if seen.reborn:
            why += ", and requires_grad on its result does not bring the graph back"
        such_as = "parameters such as " if len(names) > MAX_SHOWN else ""
        through = f" to {such_as}{listed(names[:MAX_SHOWN])}" if names else ""
        found.append(
            Finding(
                kind="loss-term-without-graph",
                severity="warning",
                title=f"a derivative in the loss is a constant, because {why}: it gives no gradient{through}"
                if seen.is_derivative
                else f"a term of the loss has no graph, because {why}: it changes the value of the loss, and gives "
                f"no gradient{through}",
                confidence="likely",
                step=seen.step,
                parameters=names,
                sites=sites_of(*(("cut", site) for site in seen.cuts), ("term", seen.added)),
                evidence={"op": seen.how},
                advice=_ADVICE["reborn" if seen.reborn else seen.how if seen.how in _ADVICE else "op"],
            )
        )
    return found


#: The most parameters in a title: others depend on the term, too.
MAX_SHOWN = 3
_WHY = {
    "no_grad": "gradient mode was off when it was computed",
    "autograd.grad": "autograd.grad was called without create_graph=True",
}
_ADVICE = {
    "reborn": "requires_grad on a value begins a new graph at it. Compute the term from tensors that keep their graph: "
    "a comparison, a rounded or an integer value has no derivative, so use the probabilities themselves. If it is not "
    "meant to train anything, leave it out of the loss that you call backward() on.",
    "autograd.grad": "Call torch.autograd.grad(..., create_graph=True): only then can the gradients that it returns be "
    "differentiated.",
    "no_grad": "Compute the term with gradient mode on. If it is not meant to train anything, leave it out of the loss "
    "that you call backward() on.",
    "op": "Compute the term from tensors that keep their graph: no detach, item, numpy or torch.tensor on the way. If "
    "it is not meant to train anything, leave it out of the loss that you call backward() on.",
}
