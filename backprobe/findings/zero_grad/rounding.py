"""Finds gradients of which only rounding is left, as behind a normalisation over a single value.

``x / x.norm(dim=-1)`` does not depend on ``x`` if the dimension has one element: what goes back through the quotient
and through the norm adds up to zero, and only rounding errors are left.
Torch's own layers return zeros or rounding errors themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import few
from ...records import BackwardCall, Finding, NodeRun, Site
from ..relations.end_of_run import feeders
from ..relations.single_values import SingleValueNorm, single_value_norms
from ..rules import sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: Maximum number of calls that are examined.
MAX_CALLS = 24
#: The most nodes of a graph that is examined.
MAX_NODES = 20_000


@dataclass(frozen=True)
class _Cancelled:
    """Gradients that cancel where they meet.

    :ivar node: the node that they meet at; ``above``: the one of those that gave them that ran first in the forward.
    :ivar left: the share that is left.
    :ivar given: the largest norm of the gradients that meet there.
    """

    node: NodeRun
    above: NodeRun
    left: float
    given: float


def rounding(trace: Trace) -> list[Finding]:
    """Return findings for parameters that get nothing but rounding errors in all recorded calls."""
    calls = [*islice((c for c in trace.backwards if c.inside is None and 0 < len(c.nodes) <= MAX_NODES), MAX_CALLS)]
    if len(calls) < thresholds.CANCELLED_MIN_CALLS:
        return []
    found = {_key(one): one for one in _cancelled(calls[0])}
    for call in calls[1:]:
        if not found:
            return []
        here = {_key(one): one for one in _cancelled(call)}
        present = {(run.name, run.site) for run in call.nodes}
        for key in [key for key in found if key not in here and key[:2] in present]:
            del found[key]
    findings = []
    for one in found.values():
        names = _starved(calls[0], one)
        if names:
            findings.append(_finding(one, names, calls[0]))
    return findings


def single_values(trace: Trace) -> list[Finding]:
    """Return findings for normalisations over single values, one for each line and layer."""
    defined = {parameter.name: parameter.defined for parameter in trace.parameters}
    return [_single_value_finding(one, defined.get(one.weight)) for one in single_value_norms(trace)]


def _key(one: _Cancelled) -> tuple[str, object, str]:
    """Return what identifies a cancellation in other calls: the giver's node and line, and the node where gradients
    meet.
    """
    return one.above.name, one.above.site, one.node.name


def _cancelled(call: BackwardCall) -> list[_Cancelled]:
    """Return the nodes of a call at which several gradients meet and add up to almost nothing."""
    into, found = feeders(call), []
    for run in call.nodes:
        above = into.get(run.node.index, ())
        if len(above) < 2 or not run.node.edges or len(run.grad_outputs) != 1:
            continue
        total = run.grad_outputs[0]
        if total is None or not total.norm:
            continue
        giving = [(call.nodes[index], call.nodes[index].grad_inputs[k : k + 1]) for index, k in above]
        norms = [(node, stat[0].norm) for node, stat in giving if stat and stat[0] is not None and stat[0].norm]
        given = max((norm for _, norm in norms), default=0.0)
        if len(norms) > 1 and 0 < total.norm <= thresholds.CANCELLED_MAX_LEFT * given:
            first = max((node for node, _ in norms), key=lambda node: node.order if node.order is not None else -1)
            found.append(_Cancelled(run, first, total.norm / given, given))
    return found


def _starved(call: BackwardCall, one: _Cancelled) -> list[str]:
    """Return the parameters below the node of a cancellation whose gradients are as small as rounding errors."""
    stack, seen, names = [one.node.node.index], {one.node.node.index}, []
    for index in stack:  # grows as we go
        run = call.nodes[index]
        norm = run.grad_outputs[0].norm if run.grad_outputs and run.grad_outputs[0] is not None else None
        if run.parameter is not None and norm is not None and norm <= thresholds.CANCELLED_MAX_LEARNED * one.given:
            names.append(run.parameter)
        for edge in run.node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return names


def _finding(one: _Cancelled, names: list[str], call: BackwardCall) -> Finding:
    """Return the finding for parameters that get only rounding errors because of one cancellation."""
    op = one.above.node.op or one.above.name
    return Finding(
        kind="zero-grad",
        severity="warning",
        title=f"what goes back through {op} and around it cancels but for rounding: {one.left:.0e} of it is left (its "
        f"result does not depend on what it is given): {few(sorted(names))} never learn",
        confidence="likely",
        module=one.above.module,
        node=one.above.name,
        parameters=tuple(names),
        step=call.step,
        sites=sites_of(("cut", one.above.site), ("failed", call.site)),
        evidence={"op": op, "incoming_norm": one.given, "left": one.left},
        advice="Over a single element a quotient by the norm or by the sum is 1 or -1, whatever the element is: "
        "normalise over a dimension that has several, or leave the normalisation out. Adam divides gradients by their "
        "size, so that even rounding errors move the parameters, at random.",
    )


def _single_value_finding(one: SingleValueNorm, defined: Site | None) -> Finding:
    """Return the finding for a normalisation over single values, whose layer was made at `defined`."""
    op = one.run.node.op or one.run.name
    left = f"only rounding errors ({one.left:.0e} of the gradient)" if one.left else "zeros"
    return Finding(
        kind="zero-grad",
        severity="warning",
        title=f"{op} gives a constant, as it does if it normalises over single values, and passes on {left}: "
        f"{few(one.parameters)} never learn",
        confidence="likely",
        module=one.run.module,
        node=one.run.name,
        parameters=one.parameters,
        step=one.call.step,
        sites=sites_of(("cut", one.run.site), ("defined", defined), ("failed", one.call.site)),
        evidence={"op": op, "incoming_norm": one.given, "left": one.left},
        advice="A value minus its own mean is zero, so only the bias is left: use fewer groups, such as "
        "GroupNorm(1, channels), normalise over a dimension that has several values, or normalise before the pooling.",
    )
