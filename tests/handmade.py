"""Constructors of short hand-written records. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from backprobe import Trace
from backprobe.records import (
    ACCUMULATE_SEQ,
    BackwardCall,
    BadValues,
    Facts,
    Finding,
    GradStat,
    Measured,
    Node,
    NodeRun,
    Parameter,
    Raised,
    Root,
    Site,
    Step,
)
from backprobe.traces import Steps, TracedStep

NAN, INF = BadValues(2, 0, 8, (8,)), BadValues(0, 1, 8, (8,))


def at(line: int, text: str = "") -> Site:
    return Site("train.py", line, "step", text)


def run(name: str, *edges: int | None, **more: Any) -> NodeRun:
    """A node whose edges lead to nodes by their position in the call, with norms `came` and `gave` (one for each edge).

    Sequence numbers fall along the call, as they do from a loss backwards: `seq` is 100 less the position.
    """
    came, gave = more.pop("came", (1.0,)), more.pop("gave", (1.0,) * len(edges))
    line, ran = more.pop("line", None), more.pop("ran", True)
    node = Node(
        index=more.pop("index", -1),
        name=name,
        seq=more.pop("seq", -1),
        module=more.pop("module", ""),
        call=1,
        site=at(line) if line is not None else None,
        op=more.pop("op", ""),
        parameter=more.pop("parameter", None),
        edges=tuple(None if e is None else (e, 0) for e in edges),
        library=more.pop("library", ()),
    )
    assert not more, more
    return NodeRun(node, 0 if ran else None, 0.0, _stats(came), _stats(gave))


def leaf(parameter: str, came: float | None = 1.0) -> NodeRun:
    return run("AccumulateGrad", parameter=parameter, seq=ACCUMULATE_SEQ, came=(came,))


def _stats(norms: Sequence[float | None]) -> tuple[GradStat | None, ...]:
    return tuple(None if n is None else GradStat((8,), "float32", n) for n in norms)


def call(*runs: NodeRun, index: int = 0, step: int | None = None, **more: Any) -> BackwardCall:
    """A backward call of a finite loss at line 90, each call in a step of its own."""
    given = {
        "kind": "Tensor.backward",
        "arguments": {},
        "roots": (Root(0 if runs else None, (), "float32", 1.0, None),),
        "site": at(90),
        "seconds": 0.1,
        "raised": None,
    } | more
    nodes = [_placed(one, i) for i, one in enumerate(runs)]
    return BackwardCall(index=index, step=index if step is None else step, nodes=nodes, **given)


def _placed(one: NodeRun, i: int) -> NodeRun:
    node = one.node
    seq = 100 - i if node.seq < 0 else node.seq
    placed = Node(
        *(i, node.name, seq, node.module, node.call, node.site, node.op, node.parameter, node.edges),
        *(node.leaf_shape, node.library),
    )
    return NodeRun(placed, None if one.order is None else i, one.seconds, one.grad_outputs, one.grad_inputs)


def bad_root(values: BadValues = NAN) -> tuple[Root, ...]:
    return (Root(0, (), "float32", float("nan"), values),)


def raised(text: str, node: int | None = 0, backward: Site | None = None, certain: bool = True) -> Raised:
    return Raised("RuntimeError", text, node, certain, backward)


def parameter(name: str, **more: Any) -> Parameter:
    """Make the record of a trained parameter with a gradient in every call of its module; `more` overrides fields."""
    given = {
        "shape": (4, 4),
        "requires_grad": True,
        "reached": 3,
        "alive": True,
        "trained": True,
        "calls": 3,
        "quiet_calls": 0,
        "root": "model",
    } | more
    return Parameter(name, **given)


def traced(
    *calls: BackwardCall, seen: Sequence[Any] = (), parameters: Sequence[Parameter] = (), ask: str = ""
) -> Trace:
    """A run of these calls, of which `seen` is known."""
    steps = [
        TracedStep(Step(step, 0.1, _loss(mine), tuple(c.index for c in mine)), mine)
        for step, mine in ((step, list(group)) for step, group in groupby(calls, key=lambda c: c.step))
    ]
    return Trace(steps, Facts(tuple(parameters), (), (ask,) if ask else (), tuple(seen)))


def _loss(calls: Sequence[BackwardCall]) -> float:
    """The sum of the losses of the calls, 1 if one of them is not known."""
    values = [root.value for one in calls for root in one.roots]
    return sum(value for value in values if value is not None) if values and None not in values else 1.0


def looked(
    curves: dict[str, Sequence[float]], trace: Trace, every: int = 10, rank: Sequence[float] | None = None
) -> Trace:
    """`trace` with these curves (quantity|name) among its statistics, all of matrices, whose stable rank is `rank`."""
    of = dict.fromkeys(name.partition("|")[2] for name in curves)
    names = tuple(curves) + tuple(f"stable_rank|{name}" for name in of)
    rows = list(zip(*curves.values(), strict=True))
    ranks = rank if rank is not None else [2.0] * len(rows)
    assert isinstance(trace.steps, Steps)
    trace.steps.measured = [Measured(every * i, names, (*row, *[ranks[i]] * len(of))) for i, row in enumerate(rows)]
    return trace


def kinds(trace: Trace) -> list[str]:
    """The kinds of what is found, where no rule failed."""
    found = [finding.kind for finding in trace.findings]
    assert [unseen for unseen in trace.coverage.unseen if unseen.what == "internal error"] == []
    return found


def only(trace: Trace) -> Finding:
    (finding,) = trace.findings
    return finding


def roles(finding: Finding) -> list[tuple[str, int]]:
    return [(place.role, place.site.line) for place in finding.sites]
