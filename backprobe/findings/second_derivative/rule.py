"""The rule for second derivatives that are zero because an activation is piecewise linear."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few
from ...ops import canonical
from ...records import BackwardCall, Finding, NodeRun, Site
from ..rules import GRADIENTS_INVALID, LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: The backward operations of piecewise linear activations, whose derivative by the activation's input is zero, and the
#: activations. relu6 is a hardtanh.
_PIECEWISE_LINEAR = {
    canonical(f"{backward}_backward"): canonical(forward)
    for backward, forward in (("threshold", "relu"), ("leaky_relu", "leaky_relu"), ("hardtanh", "hardtanh"))
}


@rule(
    Kind(
        "second-derivative-zero",
        "warning",
        "a second derivative is zero everywhere: the network has only activations such as relu",
        rank=LEARNING + 29,
        questions=(Question.LEARNS_BADLY, Question.NOT_LEARNING),
        points_to="the line that applies the relu, and the line that differentiates twice",
    ),
    silenced_by=(GRADIENTS_INVALID,),
)
def second_derivative_zero(trace: Trace) -> list[Finding]:
    """Report lines whose second derivatives are zero in all calls because of a piecewise linear activation."""
    first: dict[Site | None, BackwardCall] = {}
    counts: Counter[Site | None] = Counter()
    others: set[Site | None] = set()
    for call in trace.backwards:
        if call.kind != "autograd.grad" or call.raised is not None or call.site in others:
            continue
        if any(map(_is_flat, call.nodes)):
            if not _gives_zeros(call):
                others.add(call.site)
            else:
                first.setdefault(call.site, call)
                counts[call.site] += 1
    return [
        _finding(call, counts[at])
        for at, call in first.items()
        if at not in others and counts[at] >= thresholds.SECOND_DERIVATIVE_MIN_CALLS
    ]


def _is_flat(run: NodeRun) -> bool:
    """Return whether a node ran that differentiates the derivative of a piecewise linear activation."""
    return canonical(run.name) in _PIECEWISE_LINEAR and bool(_norms(run))


def _norms(run: NodeRun) -> list[float]:
    """Return the known norms of the gradients that a node received."""
    return [stat.norm for stat in run.grad_outputs if stat is not None and stat.norm is not None]


def _gives_zeros(call: BackwardCall) -> bool:
    """Return whether all gradients that a call returns are zero, although some inside it are not."""
    ran = {run.node.index for run in call.nodes if _norms(run)}
    last = [
        run
        for run in call.nodes
        if run.node.index in ran and not any(edge is not None and edge[0] in ran for edge in run.node.edges)
    ]
    begins = any(norm > 0 for run in call.nodes for norm in _norms(run))
    return begins and bool(last) and all(norm == 0 for run in last for norm in _norms(run))


def _finding(first: BackwardCall, count: int) -> Finding:
    """Return the finding for a line that differentiates twice.

    :param first: its first call; `count`: the number of its calls.
    """
    kinds = {_PIECEWISE_LINEAR[canonical(run.name)] for run in first.nodes if _is_flat(run)}
    runs = list({(run.module, run.site): run for run in first.nodes if canonical(run.name) in kinds}.values())
    modules = tuple(dict.fromkeys(run.module for run in runs if run.module))
    name = runs[0].node.op or canonical(runs[0].name) if runs else "an activation"
    where = f" ({few(modules)})" if modules else ""
    return Finding(
        kind="second-derivative-zero",
        severity="warning",
        title=f"the second derivative is exactly zero in all {count} recorded calls: {name}{where} is piecewise "
        "linear, and the term of the loss that uses this derivative trains nothing",
        confidence="certain",
        module=modules[0] if modules else None,
        node=runs[0].name if runs else None,
        step=first.step,
        sites=sites_of(*(("cause", site) for site in dict.fromkeys(run.site for run in runs)), ("failed", first.site)),
        evidence={"op": name, "calls": count, "modules": list(modules)},
        advice="Use an activation that is smooth, such as tanh, silu, gelu or softplus.",
    )
