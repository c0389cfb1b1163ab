"""Infers which node of a backward call made a non-finite gradient, if only the gradients of leaves are known.

A non-finite gradient stays so on its way to the leaves. So all leaves with a bad gradient, and none with a good one,
are reached through the node; of the nodes that remain, it is one whose derivative is not finite everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from ...graphs.plan import Plan
from ...ops import NORMALISES, OVERFLOWS, POLE, info


def first_bad_node(
    plan: Plan, order: Sequence[int], leaves: Mapping[int, bool], custom: Set[int], new: Set[int]
) -> int | None:
    """Return the node that made the first bad gradient; ``None`` if several may have.

    :param order: the nodes that ran, in the engine's order.
    :param leaves: accumulators that got a gradient, and whether it is bad.
    :param custom: nodes of custom functions.
    :param new: nodes that earlier graphs did not have; they are preferred.
    """
    number = {i: 1 << at for at, i in enumerate(leaves)}
    bad = sum(number[i] for i, is_bad in leaves.items() if is_bad)
    below = dict(number)  # the leaves that gradients of a node reach, as bits
    for i in reversed(order):
        if i not in below:
            bits = 0
            for edge in plan.edges(i):
                if edge is not None:
                    bits |= below.get(edge[0], 0)
            below[i] = bits
    all_bad = {i for i in order if below[i] and not below[i] & ~bad}
    found = []
    for i in order:
        if i in leaves:
            continue
        gives = [below.get(edge[0], 0) for edge in plan.edges(i) if edge is not None and edge[0] in all_bad]
        covered = 0
        for bits in gives:
            covered |= bits
        if bad and covered == bad:  # all bad gradients went through here, and what it gave there may be bad
            found.append(i)
    by_rank = [[i for i in found if (0 if i in custom else _risk_rank(plan.names[i])) == level] for level in range(3)]
    for those in (new, set(found)):
        for level in by_rank:
            if first := [i for i in level if i in those]:
                return first[0]
    return found[0] if len(found) == 1 else None


def can_make_nonfinite(name: str) -> bool:
    """Return whether a node called `name` makes gradients that are not finite for some inputs of moderate size."""
    return _risk_rank(name) < 2


def _risk_rank(name: str) -> int:
    """Return how easily a node makes a non-finite gradient.

    0 for a singularity, 1 if it depends on arguments or on a non-finite result, 2 if the gradient can overflow, 3 if it
    hardly ever happens.
    """
    operator = info(name)
    if operator.singular_at and not operator.singular_for_some_arguments:
        return 0
    if operator.singular_at or operator.forward in (POLE, NORMALISES):
        return 1
    return 2 if operator.forward == OVERFLOWS or operator.amplifies else 3
