"""One parameter's gradient is far beyond all others, and a single operation made it so: a part of ``growth``.

Normalising a vector of almost no length multiplies the gradient of that row by one over the length. Everything stays
finite, and a clipped norm hides it: the rest of the step is scaled down to nothing.
"""

from __future__ import annotations

import math
from statistics import median

from ..records import BackwardCall, Finding, FindingSite, NodeRun
from ..text import number

#: A parameter's gradient against that of the loss and the median of the others; what one op multiplies.
BEYOND, FACTOR = 1e6, 1e5


def spike(call: BackwardCall) -> Finding | None:
    """What one operation of `call` made of a gradient, where it reached a parameter."""
    begins = [g.norm for r in call.roots if r.node is not None for g in call.nodes[r.node].grad_outputs if g and g.norm]
    leaves = [(run, norm) for run in call.nodes if run.parameter is not None and (norm := _norm(run))]
    if not begins or len(leaves) < 3 or not all(math.isfinite(norm) for norm in [*begins, *(n for _, n in leaves)]):
        return None
    top, most = max(leaves, key=lambda one: one[1])
    others = median(norm for run, norm in leaves if run is not top)
    if most < BEYOND * max(*begins, others):
        return None
    culprit, factor = _multiplier(call, top)
    if culprit is None or factor < FACTOR:
        return None
    op = culprit.node.op or culprit.name
    pairs = (("cause", culprit.site), ("failed", call.site))
    return Finding(
        kind="exploding-gradient",
        severity="warning",
        title=f"the backward of {op} multiplies the gradient by {number(factor)}: that of {top.parameter} is "
        f"{number(most)}, and of the other parameters about {number(others)}",
        confidence="certain",
        module=culprit.module,
        node=culprit.name,
        parameters=(str(top.parameter),),
        step=call.step,
        sites=tuple(FindingSite(role, site) for role, site in pairs if site is not None),
        evidence={
            "op": op,
            "factor_of_op": factor,
            "norm": most,
            "median_of_others": others,
            "norm_of_loss": max(begins),
        },
        advice="A row or element has almost no length, spread or size, and the operation divides by it. Give it a "
        "bound that counts (an eps of 1e-6 or more, under the root where there is one), or leave such rows out. "
        "Clipping the norm of all gradients scales the others to nothing.",
    )


def _norm(run: NodeRun) -> float | None:
    return next((g.norm for g in run.grad_outputs if g is not None and g.norm is not None), None)


def _multiplier(call: BackwardCall, leaf: NodeRun) -> tuple[NodeRun | None, float]:
    """The node above `leaf` that multiplies most what goes on to it."""
    into: dict[int, list[tuple[int, int]]] = {}
    for run in call.nodes:
        for k, edge in enumerate(run.node.edges):
            if edge is not None:
                into.setdefault(edge[0], []).append((run.node.index, k))
    found: NodeRun | None = None
    best = 0.0
    stack, seen = [leaf.node.index], {leaf.node.index}
    while stack:
        for above, k in into.get(stack.pop(), ()):
            run = call.nodes[above]
            came = _norm(run)
            gave = run.grad_inputs[k] if k < len(run.grad_inputs) else None
            if came and gave is not None and gave.norm and math.isfinite(gave.norm) and gave.norm / came > best:
                found, best = run, gave.norm / came
            if above not in seen:
                seen.add(above)
                stack.append(above)
    return found, best
