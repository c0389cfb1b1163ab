"""Which node of a backward call made a gradient that is not finite, where only leaves were looked at.

What is not finite stays so on its way to the leaves. So the node is one through which all leaves went that got a bad
gradient, and no other that got a good one; of those that are left, it is one whose derivative is not finite everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

from ...graphs.plan import Plan

_STEM = re.compile(r"^(?:torch::autograd::)?(.*?)(?:Backward\d*)?$")
#: Nodes whose derivative is not finite for some finite input.
SINGULAR = frozenset(
    (
        *("Sqrt", "Rsqrt", "Log", "Log2", "Log10", "Log1P", "Xlogy", "Norm"),
        *(
            "LinalgVectorNorm",
            "LinalgMatrixNorm",
            "Cdist",
            "EuclideanDist",
            "PairwiseDistance",
            "Std",
            "Var",
            "StdMean",
        ),
        *("Acos", "Asin", "Acosh", "Atanh", "Atan2", "Angle", "Hypot", "Cumprod", "Logsumexp"),
        *("LinalgSvd", "Svd", "LinalgEigh", "LinalgEig", "LinalgQr", "LinalgInvEx", "LinalgDet", "LinalgSlogdet"),
        *(
            "LinalgCholeskyEx",
            "BinaryCrossEntropy",
            "Lerp",
            "Logit",
            "Erfinv",
            "Digamma",
            "Lgamma",
            "Softmax",
            "Renorm",
        ),
    )
)
#: Those of which that holds with some arguments.
SOMETIMES = frozenset(("Div", "Pow", "Reciprocal", "Prod", "LogSoftmax"))
#: Nodes whose gradient may overflow.
OVERFLOWS = frozenset(("Exp", "Exp2", "Expm1", "Sinh", "Cosh", "Mul", "Mm", "Addmm", "Bmm", "Baddbmm", "Tan"))


def first_bad_node(
    plan: Plan, order: Sequence[int], leaves: Mapping[int, bool], custom: Set[int], new: Set[int]
) -> int | None:
    """The node that made the first bad gradient; ``None`` where several can have.

    :param order: the nodes that ran, in the engine's order.
    :param leaves: accumulators that got a gradient: whether it is bad.
    :param custom: nodes of functions that the user wrote.
    :param new: nodes that graphs before this one did not have: it is rather one of them.
    """
    number = {i: 1 << at for at, i in enumerate(leaves)}
    bad = sum(number[i] for i, is_bad in leaves.items() if is_bad)
    below = dict(number)  # the leaves that gradients of a node go to, as bits
    for i in reversed(order):
        if i not in below:
            bits = 0
            for edge in plan.edges(i):
                if edge is not None:
                    bits |= below.get(edge[0], 0)
            below[i] = bits
    spoilt = {i for i in order if below[i] and not below[i] & ~bad}
    found = []
    for i in order:
        if i in leaves:
            continue
        gives = [below.get(edge[0], 0) for edge in plan.edges(i) if edge is not None and edge[0] in spoilt]
        covered = 0
        for bits in gives:
            covered |= bits
        if bad and covered == bad:  # all that is bad went through here, and what it gave there may be bad
            found.append(i)
    able = [[i for i in found if i in custom or _stem(plan.names[i]) in SINGULAR]]
    able += [[i for i in found if _stem(plan.names[i]) in kind] for kind in (SOMETIMES, OVERFLOWS)]
    for those in (new, set(found)):
        for level in able:
            if first := [i for i in level if i in those]:
                return first[0]
    return found[0] if len(found) == 1 else None


def is_able(name: str) -> bool:
    """Whether the derivative of a node called `name` is not finite for some finite input."""
    return _stem(name) in SINGULAR or _stem(name) in SOMETIMES


def _stem(name: str) -> str:
    match = _STEM.match(name)
    return match[1] if match else name
