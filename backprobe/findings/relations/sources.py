"""Finds the operation whose result another one takes, through operations that only pass values on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...ops import canonical, info
from ...records import BackwardCall, Node, NodeRun

LOG_SOFTMAX, LOGSUMEXP, SUB = map(canonical, ("log_softmax", "logsumexp", "sub"))


def name_of(run: NodeRun) -> str:
    """Return the canonical name of the operation that made a node."""
    return canonical(run.name)


def passes_values(run: NodeRun) -> bool:
    """Return whether the result of a node's operation has elements of its only input, and nothing else."""
    row = info(run.name)
    chooses = row.reshapes or row.casts or row.is_view or row.may_be_view or row.chooses_by_index
    return chooses and sum(edge is not None for edge in run.node.edges) == 1


def input_of(call: BackwardCall, run: NodeRun, number: int = 0) -> NodeRun | None:
    """Return the node that made an input of a node's operation; ``None`` if it has no graph."""
    edge = run.node.edges[number] if number < len(run.node.edges) else None
    return call.nodes[edge[0]] if edge is not None else None


def source_of(call: BackwardCall, run: NodeRun, number: int = 0) -> NodeRun | None:
    """Return the node that computed the values of an input, behind nodes that only pass them on; ``None`` if it has no
    graph.

    :param number: the input's number among the node's edges.
    """
    source = input_of(call, run, number)
    while source is not None and passes_values(source):
        source = input_of(call, source)
    return source


def is_log_softmax(call: BackwardCall, run: NodeRun) -> bool:
    """Return whether a node's operation normalises its first input with a log-softmax.

    Distributions of torch compute it as the difference of logits and their ``logsumexp``.
    """
    if name_of(run) != SUB:
        return name_of(run) == LOG_SOFTMAX
    subtracted = source_of(call, run, 1)
    if subtracted is None or name_of(subtracted) != LOGSUMEXP:
        return False
    logits = source_of(call, run)
    return logits is not None and source_of(call, subtracted) is logits


def with_new_graphs(calls: Iterable[BackwardCall]) -> Iterator[BackwardCall]:
    """Yield the calls whose graph no earlier call has: steps share the nodes of equal graphs."""
    known: dict[int, Node] = {}
    for call in calls:
        if not len(call.nodes):
            continue
        first = call.nodes[0].node
        if known.get(id(first)) is not first:
            known[id(first)] = first
            yield call


def first_of(calls: Iterable[BackwardCall], operation: str, step: int) -> tuple[BackwardCall | None, NodeRun | None]:
    """Return the first node of an operation from `step` on, and its call before it; ``None`` for both if there is none.

    :param operation: the name of its row in the table of operators.
    """
    later = ((call, run) for call in calls if call.step >= step for run in call.nodes)
    return next((pair for pair in later if info(pair[1].name).name == operation), (None, None))
