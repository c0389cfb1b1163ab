"""Normalisations over single values: their result is a constant, and nothing before them learns.

A group norm with as many groups as channels, after a pooling to one position, subtracts each value from itself. Its
result is its bias. The gradients of its input and its weight are rounding errors, in every call; that of its bias is
not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ... import thresholds
from ...ops import info
from ...records import BackwardCall, NodeRun, Site

if TYPE_CHECKING:
    from ...traces import Trace

#: The layers that have a mean and a variance for each sample. A batch norm refuses single values.
NORMS = ("group_norm", "layer_norm")
#: Maximum number of calls that are examined, from the first on.
MAX_CALLS = 24
#: The most nodes of a graph that is examined.
MAX_NODES = 20_000


@dataclass(frozen=True)
class SingleValueNorm:
    """A normalisation over single values.

    :ivar run: its node in the first call; ``call``: that call.
    :ivar given: the norm of the gradient that it gets; ``left``: the share of it that it passes on.
    :ivar weight: the name of its weight.
    :ivar parameters: its weight, and the parameters before it that get no other gradients.
    """

    run: NodeRun
    call: BackwardCall
    given: float
    left: float
    weight: str
    parameters: tuple[str, ...]


def single_value_norms(trace: Trace) -> list[SingleValueNorm]:
    """Return the normalisations over single values: in all of the first recorded calls, what they pass on is rounding.

    Those that pass on exact zeros in all calls are left out.
    """
    calls = [*islice((c for c in trace.backwards if c.inside is None and 0 < len(c.nodes) <= MAX_NODES), MAX_CALLS)]
    found: dict[tuple[str | None, Site | None], tuple[NodeRun, BackwardCall, float, float]] = {}
    counts: dict[tuple[str | None, Site | None], int] = {}
    starved: dict[tuple[str | None, Site | None], set[str]] = {}
    refuted = set()
    for call in calls:
        for run in call.nodes:
            if info(run.name).name not in NORMS or not run.grad_outputs:
                continue
            key = run.node.module, run.site
            came = _norm_of(run.grad_outputs[0])
            if not came or key in refuted:
                continue
            left = _share_passed_on(run, came)
            if left is None:
                refuted.add(key)
                found.pop(key, None)
                continue
            counts[key] = counts.get(key, 0) + 1
            names = _starved(call, run, came)
            starved[key] = starved[key] & names if key in starved else names
            if key not in found:
                found[key] = run, call, came, left
    return [
        SingleValueNorm(run, call, came, left, _weight_of(call, run), tuple(sorted(starved[key])))
        for key, (run, call, came, left) in found.items()
        if counts[key] >= thresholds.SINGLE_VALUE_MIN_CALLS and starved[key] and not _all_zero(run)
    ]


def _share_passed_on(run: NodeRun, came: float) -> float | None:
    """Return the share of the incoming gradient that a normalisation over single values passes on; ``None`` if it is
    none, or if that is not known.

    It is known from the gradients of weight and bias: those of a constant input differ by as much, but that passes on
    more than it gets.
    """
    if len(run.grad_inputs) < 3:
        return None
    gave, weight, bias = (_norm_of(one) for one in run.grad_inputs[:3])
    if gave is None or weight is None or not bias:
        return None
    return (
        gave / came
        if gave <= thresholds.SINGLE_VALUE_MAX_INPUT_GRADIENT * came
        and weight <= thresholds.SINGLE_VALUE_MAX_WEIGHT_GRADIENT * bias
        else None
    )


def _all_zero(run: NodeRun) -> bool:
    """Return whether a normalisation passes on exact zeros: the rule for these says the same."""
    return not any(_norm_of(one) for one in run.grad_inputs[:2])


def _norm_of(stat: object) -> float | None:
    """Return the norm of a gradient; ``None`` if there was none, or if it was not measured."""
    norm = getattr(stat, "norm", None)
    return norm if isinstance(norm, (int, float)) and norm == norm else None


def _weight_of(call: BackwardCall, norm: NodeRun) -> str:
    """Return the name of the weight of a normalisation; empty if it is not known."""
    edge = norm.node.edges[1]
    return str(call.nodes[edge[0]].parameter or "") if edge is not None else ""


def _starved(call: BackwardCall, norm: NodeRun, given: float) -> set[str]:
    """Return the weight of a normalisation and the parameters before it, if their gradients are as small as rounding
    errors.
    """
    stack = [edge[0] for edge in norm.node.edges[:2] if edge is not None]
    seen, names = set(stack), set()
    for index in stack:  # grows as we go
        run = call.nodes[index]
        size = _norm_of(run.grad_outputs[0]) if run.grad_outputs else None
        if run.parameter is not None and size is not None and size <= thresholds.SINGLE_VALUE_MAX_LEARNED * given:
            names.add(run.parameter)
        for edge in run.node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return names
