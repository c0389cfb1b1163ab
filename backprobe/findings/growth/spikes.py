"""Findings for a gradient that a single operation makes far larger than the others, or than in all other steps.

``growth`` uses them. Normalising a vector of almost zero length multiplies the gradient of that row by one over the
length, and so does dividing by a number near zero. Everything stays finite, and a clipped norm hides it: the rest of
the step is scaled down to nothing.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from ... import thresholds
from ...basics.text import number
from ...ops import NORMALISES, POLE, info
from ...records import BackwardCall, Finding, NodeRun, Site
from ..relations.end_of_run import feeders
from ..rules import sites_of


def spiked(backwards: Iterable[BackwardCall]) -> Finding | None:
    """Return a finding for the first call in which one operation makes a gradient far larger than usual; ``None`` if
    none.

    Usual is the median of the calls from the same line, of the earlier ones or of all, whichever is smaller.
    """
    calls = [*looked_at(backwards)]
    largest: dict[Site | None, list[float]] = {}
    usual = []
    for call in calls:
        most = largest_of(call)
        before = largest.setdefault(call.site, [])
        usual.append(_usual(before))
        if 0.0 < most < math.inf:
            insort(before, most)
    ever = {site: _usual(norms) for site, norms in largest.items()}
    # Compare with the calls before it, in case the spikes go on; and with all calls, in case they begin with it.
    return next(
        (f for call, was in zip(calls, usual, strict=True) if (f := _spike(call, min(was, ever[call.site])))), None
    )


def _usual(norms: Sequence[float]) -> float:
    """Return the median of sorted norms; infinite if there are too few."""
    return norms[len(norms) // 2] if len(norms) >= thresholds.GRADIENT_SPIKE_MIN_OTHER_CALLS else math.inf


def looked_at(calls: Iterable[BackwardCall]) -> Iterator[BackwardCall]:
    """Return the calls without an error that are not inside another call and whose nodes are recorded."""
    return (call for call in calls if call.raised is None and call.inside is None and len(call.nodes))


def _spike(call: BackwardCall, usual: float) -> Finding | None:
    """Return a finding if one operation of `call` multiplies a gradient that reaches a parameter.

    :param usual: the median of the largest gradients of such calls; infinite if too few are known.
    """
    begins = [g.norm for r in call.roots if r.node is not None for g in call.nodes[r.node].grad_outputs if g and g.norm]
    leaves = [(run, norm) for run in call.nodes if run.parameter is not None and (norm := norm_of(run))]
    if not begins or not leaves or not all(math.isfinite(norm) for norm in [*begins, *(n for _, n in leaves)]):
        return None
    top, most = max(leaves, key=lambda one: one[1])
    if len(leaves) >= 3 and most >= thresholds.GRADIENT_SPIKE_RATIO * max(*begins, others := _others(leaves, top)):
        return _finding(
            call,
            top,
            most,
            begins,
            thresholds.GRADIENT_SPIKE_MIN_OP_FACTOR,
            f"and of the other parameters about {number(others)}",
        )
    if most >= thresholds.GRADIENT_SPIKE_SUDDEN_RATIO * max(*begins, usual):
        return _finding(
            call,
            top,
            most,
            begins,
            thresholds.GRADIENT_SPIKE_SUDDEN_RATIO / 10,
            f"and is about {number(usual)} in other steps",
        )
    return None


def _others(leaves: Sequence[tuple[NodeRun, float]], top: NodeRun) -> float:
    """Return the median norm of the gradients of all parameters but that of the node `top`."""
    return median(norm for run, norm in leaves if run is not top)


def _finding(
    call: BackwardCall, top: NodeRun, most: float, begins: Sequence[float], least: float, against: str
) -> Finding | None:
    """Return the finding for a parameter's gradient that one operation made large; ``None`` if no factor reaches
    `least`.

    :param top: the node of the parameter with the largest gradient.
    :param most: the norm of that gradient.
    :param begins: norms of the gradients of the loss.
    :param against: the end of the title, which says what the gradient is compared with.
    """
    culprit, factor = _multiplier(call, top)
    if culprit is None or factor < least:
        return None
    op = culprit.node.op or culprit.name
    pairs = (("cause", culprit.site), ("failed", call.site))
    return Finding(
        kind="exploding-gradient",
        severity="warning",
        title=f"the backward of {op} multiplies the gradient by {number(factor)}: that of {top.parameter} is "
        f"{number(most)}, {against}",
        confidence="certain",
        module=culprit.module,
        node=culprit.name,
        parameters=(str(top.parameter),),
        step=call.step,
        sites=sites_of(*pairs),
        evidence={
            "op": op,
            "factor_of_op": factor,
            "norm": most,
            "norm_of_loss": max(begins),
        },
        advice=_advice(op),
    )


def _advice(op: str) -> str:
    """Return advice for an operation that multiplies gradients; it depends on whether that operation divides by a
    value.
    """
    row = info(op)
    if row is not None and row.forward not in (NORMALISES, POLE) and not row.singular_at:
        return (
            f"{op} divides by nothing: the values that it multiplies with have become large. Look for the reason in "
            "earlier steps: a term of the loss that only part of the model gets gradients from, a value that nothing "
            "bounds, or a learning rate that is too high. Clipping the norm of all gradients scales the others to "
            "nothing."
        )
    return (
        "A row or element has almost no length, spread or size, and the operation divides by it. Give it a bound that "
        "counts (an eps of 1e-6 or more, under the root where there is one), or leave such rows out. Clipping the norm "
        "of all gradients scales the others to nothing."
    )


def largest_of(call: BackwardCall) -> float:
    """Return the largest norm of a parameter's gradient in `call`."""
    return max((norm for run in call.nodes if run.parameter is not None and (norm := norm_of(run))), default=0.0)


def norm_of(run: NodeRun) -> float | None:
    """Return the first known norm among the gradients that a node received; ``None`` if none is known."""
    return next((g.norm for g in run.grad_outputs if g is not None and g.norm is not None), None)


def _multiplier(call: BackwardCall, leaf: NodeRun) -> tuple[NodeRun | None, float]:
    """Return the node among those upstream of `leaf` in the backward that multiplies its gradient most, and the factor.

    ``None`` and 0 if no factor was measured.
    """
    into = feeders(call)
    found: NodeRun | None = None
    best = 0.0
    stack, seen = [leaf.node.index], {leaf.node.index}
    while stack:
        for above, k in into.get(stack.pop(), ()):
            run = call.nodes[above]
            came = norm_of(run)
            gave = run.grad_inputs[k] if k < len(run.grad_inputs) else None
            if came and gave is not None and gave.norm and math.isfinite(gave.norm) and gave.norm / came > best:
                found, best = run, gave.norm / came
            if above not in seen:
                seen.add(above)
                stack.append(above)
    return found, best
