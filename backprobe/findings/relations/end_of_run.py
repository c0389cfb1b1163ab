"""The last recorded steps of a run: parameters that learned before them and no longer do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ... import thresholds
from ...records import BackwardCall, Cut, NodeRun, Parameter

if TYPE_CHECKING:
    from ...traces import Trace

#: The operation of a custom function's node.
OWN_FUNCTION = "Function.apply"


def latest_recorded(trace: Trace, most: int) -> list[list[BackwardCall]]:
    """Return the calls of each of the last `most` steps that have nodes, the latest first."""
    recorded = ([c for c in step.backwards if c.inside is None and len(c.nodes)] for step in reversed(trace.steps))
    return [*islice((calls for calls in recorded if calls), most)]


def last_recorded(trace: Trace, count: int) -> list[list[BackwardCall]]:
    """Return the calls of each of the last `count` steps that have nodes; none if there are fewer such steps."""
    found = latest_recorded(trace, count)
    return found[::-1] if len(found) == count else []


def feeders(call: BackwardCall) -> dict[int, list[tuple[int, int]]]:
    """Return for each node, by index, the nodes that pass gradients to it, each with the number of their edge to it."""
    into: dict[int, list[tuple[int, int]]] = {}
    for run in call.nodes:
        for k, edge in enumerate(run.node.edges):
            if edge is not None:
                into.setdefault(edge[0], []).append((run.node.index, k))
    return into


def learned(trace: Trace) -> list[Parameter]:
    """Return the trainable, non-empty parameters that had a non-zero gradient in some call."""
    return [p for p in trace.parameters if p.requires_grad and p.alive and all(p.shape)]


def reached_no_more(trace: Trace, cut: Cut) -> list[Parameter]:
    """Return the parameters of `cut` that learned before and that no call of the last steps reached.

    Nested calls, as of a reentrant checkpoint, count too. Empty if `cut` came after the first of these steps, or if
    there are too few.
    """
    steps = [step for step in trace.steps if any(len(call.nodes) for call in step.backwards)][
        -thresholds.NO_LEARNING_LAST_STEPS :
    ]
    if len(steps) < thresholds.NO_LEARNING_LAST_STEPS or steps[0].index < cut.step:
        return []
    reached = {run.parameter for step in steps for call in step.backwards for run in call.nodes}
    names = frozenset(cut.parameters) - reached
    return [p for p in learned(trace) if p.name in names and p.trained is not False]


def given_none(call: BackwardCall, names: Collection[str]) -> dict[str, NodeRun]:
    """Return parameters of `names` whose gradient a custom function left out in `call`, each with the function's node.

    The function received a gradient and returned none.
    """
    if not any(run.node.op == OWN_FUNCTION for run in call.nodes):
        return {}
    found: dict[str, NodeRun] = {}
    into = feeders(call)
    for run in call.nodes:
        if run.parameter in names and run.order is not None and not any(run.grad_outputs[:1]):
            origins = _gave_none(call, run.node.index, into)
            if origins and all(one.node.op == OWN_FUNCTION and one.order is not None for one in origins):
                found[str(run.parameter)] = origins[0]
    return found


def _gave_none(call: BackwardCall, node: int, into: Mapping[int, Sequence[tuple[int, int]]]) -> list[NodeRun]:
    """Return the nodes upstream of `node` in the backward that received a gradient and returned none on the path to it.

    :param into: for each node, the nodes that pass gradients to it, from ``feeders``.
    """
    waiting, seen, found = [node], {node}, []
    for index in waiting:  # grows as we go
        for above, k in into.get(index, ()):
            one = call.nodes[above]
            if any(one.grad_outputs):
                found += [] if any(one.grad_inputs[k : k + 1]) else [one]
            elif above not in seen:
                seen.add(above)
                waiting.append(above)
    return found


def left_out(trace: Trace) -> list[tuple[NodeRun, list[str], BackwardCall]]:
    """Return custom functions that, in all of the last steps, returned no gradient for parameters that learned before.

    Each comes as its node, the names of these parameters, and the first of the calls.
    """
    names = {p.name for p in learned(trace)}
    steps = last_recorded(trace, thresholds.NO_LEARNING_LAST_STEPS) if names else []
    makers: dict[str, NodeRun] = {}
    first: BackwardCall | None = None
    for call in (call for calls in steps for call in calls):
        if call.raised is not None or call.kind == "autograd.grad":
            continue
        mine = given_none(call, names)
        first, makers = (call, mine) if first is None else (first, {n: r for n, r in makers.items() if n in mine})
        if not makers:
            return []
    groups: dict[int, tuple[NodeRun, list[str]]] = {}
    for name, run in makers.items():
        groups.setdefault(run.node.index, (run, []))[1].append(name)
    return [(run, sorted(mine), first) for run, mine in groups.values() if first is not None]
