"""Backward calls as columns: the choice of calls for the page, their graphs, and the gradients of their nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..basics.text import shape
from ..graphs.packed_calls import PackedNodes
from ..ops import info
from ..records import (
    ACCUMULATE_SEQ,
    BackwardCall,
    BadNode,
    BadOp,
    Finding,
    GradStat,
    NodeRun,
    Site,
    TensorStat,
    together,
)
from ..traces import TracedStep, numbers_of
from .columns import clean, column, norms
from .tables import Modules, Parameters, Sites

#: Maximum number of nodes and of calls in a page.
NODES, CALLS = 300_000, 24


class LayoutTable:
    """The layouts of the page's backward calls, each stored once and referred to by its number."""

    def __init__(self, modules: Modules, parameters: Parameters, sites: Sites) -> None:
        self._modules, self._parameters, self._sites = modules, parameters, sites
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []
        self.rows: list[dict[str, object]] = []

    def of(self, nodes: Sequence[NodeRun]) -> int:
        """Return the number of the layout of a call's nodes, adding it if it is new."""
        layout = nodes.packed.layout if isinstance(nodes, PackedNodes) else nodes
        number = self._numbers.get(id(layout))
        if number is None:
            number = self._numbers[id(layout)] = len(self.rows)
            self._held.append(layout)
            self.rows.append(self._row(nodes))
        return number

    def _row(self, nodes: Sequence[NodeRun]) -> dict[str, object]:
        """Return a layout as columns for the page: names, modules, lines and edges of its nodes."""
        strings: dict[str, int] = {}
        starts, to = [0], []
        for run in nodes:
            to += [-1 if e is None else e[0] for e in run.node.edges]
            starts.append(len(to))
        plain = [run.node for run in nodes]
        names = [strings.setdefault(n.name, len(strings)) for n in plain]
        ops = [strings.setdefault(n.op or "", len(strings)) for n in plain]
        stacks: dict[tuple[Site, ...], int] = {}
        same: dict[int, int] = {}  # most nodes share the same tuple object
        for node in plain:
            if id(node.library) not in same:
                same[id(node.library)] = stacks.setdefault(node.library, len(stacks))
        return {
            "strings": list(strings),
            "name": column("i", names),
            "op": column("i", ops),
            "seq": column("i", [-1 if n.seq == ACCUMULATE_SEQ else n.seq for n in plain]),
            "module": column("i", [self._modules.of(n.module) for n in plain]),
            "nth": column("i", [n.call for n in plain]),
            "site": column("i", [self._sites.of(n.site) for n in plain]),
            "library": column("i", [same[id(n.library)] for n in plain]),
            "stacks": [self._sites.stack(stack) for stack in stacks],
            "parameter": column("i", [self._parameters.of(n.parameter) for n in plain]),
            "edges": column("i", starts),
            "to": column("i", to),
        }


def chosen(steps: Sequence[TracedStep], findings: Iterable[Finding]) -> list[int]:
    """Return the positions of the steps whose backward calls a page shows, the most important first.

    These are the steps of findings, the first and the last two, and some in between at multiples of a power of two, so
    that most stay the same while a run grows.
    """
    by_index = {int(i): at for at, i in enumerate(numbers_of(steps))}
    wanted = [by_index[f.step] for f in findings if f.step in by_index]
    last = len(steps) - 1
    stride = 1 << max(0, math.ceil(math.log2(max(1, last) / 4)))
    spread = [0, last, *range(stride, last, stride), 1, last - 1]
    return [at for at in dict.fromkeys([*wanted, *spread]) if 0 <= at <= last]


def select(steps: Sequence[TracedStep], positions: Sequence[int]) -> list[BackwardCall]:
    """Return the backward calls of these steps that fit into a page, oldest first.

    Earlier `positions` have priority; the first call is taken whatever its size.
    """
    found: dict[int, BackwardCall] = {}
    room = NODES
    for position in positions:
        for call in steps[position].backwards:
            size = len(call.nodes)
            if call.index in found or len(found) == CALLS or (size > room and found) or not size:
                continue
            found[call.index] = call
            room -= size
    return [found[i] for i in sorted(found)]


def document(call: BackwardCall, layouts: LayoutTable, sites: Sites) -> dict[str, Any]:
    """Return one backward call as a document for the page: its data, and columns with the gradients of its nodes."""
    runs = call.nodes
    words: dict[str, int] = {}
    shapes = []
    for run in runs:
        first = next((g for g in run.grad_outputs if g is not None and g.shape is not None), None)
        shapes.append(-1 if first is None else words.setdefault(_shape(first), len(words)))
    return {
        "step": call.step,
        "index": call.index,
        "kind": call.kind,
        "arguments": {k: str(v) for k, v in call.arguments.items()},
        "site": sites.of(call.site),
        "seconds": call.seconds,
        "raised": f"{call.raised.type}: {call.raised.text}" if call.raised else None,
        "layout": layouts.of(runs),
        "roots": [
            {
                "node": -1 if r.node is None else r.node,
                "shape": list(r.shape),
                "dtype": r.dtype,
                "value": clean(r.value),
            }
            for r in call.roots
        ],
        "order": column("i", [-1 if r.order is None else r.order for r in runs]),
        "time": column("f", [-1.0 if r.seconds is None else r.seconds for r in runs]),
        "came": norms([_together(r.grad_outputs) for r in runs]),
        "out": norms([g.norm if g is not None else None for r in runs for g in _by_edge(r)]),
        "marks": column("B", _marks(call)),
        "shape": column("i", shapes),
        "words": list(words),
        "notes": {str(k): v for k, v in _notes(call).items()},
    }


def _by_edge(run: NodeRun) -> list[GradStat | None]:
    """Return the gradient that a node returned for each of its edges; ``None`` if it was not measured."""
    given = list(run.grad_inputs)[: len(run.node.edges)]
    return given + [None] * (len(run.node.edges) - len(given))


def _together(stats: Sequence[GradStat | None]) -> float | None:
    """Return the norm of several gradients taken as one vector; ``None`` if no norm is known."""
    known = [g.norm for g in stats if g is not None and g.norm is not None]
    return together(known) if known else None


def _shape(stat: GradStat) -> str:
    """Return shape and dtype of a gradient as text."""
    return f"{shape(stat.shape or ())} {(stat.dtype or '').removeprefix('torch.')}".strip()


def _marks(call: BackwardCall) -> list[int]:
    """Return the marks of each node as bits.

    1: it received a bad gradient; 2: it made the first bad one; 4: its forward result was bad and did harm; 8: its
    gradients were zero; 16: it raised an error.
    """
    made = {b.node for b in call.bad_nodes[:1]}
    forward = {i for op in _harmful(call) for i in _nodes_of(call, op)}
    marks = []
    for i, run in enumerate(call.nodes):
        known = [g for g in run.grad_outputs if g is not None]
        measured = [g.norm for g in known if g.norm is not None]
        bad = any(g.bad is not None or (g.norm is not None and not math.isfinite(g.norm)) for g in known)
        zero = bool(measured) and len(measured) == len(run.grad_outputs) and not any(measured)
        marks.append(bad | (i in made) << 1 | (i in forward) << 2 | zero << 3)
    if call.raised is not None and call.raised.node is not None and 0 <= call.raised.node < len(marks):
        marks[call.raised.node] |= 16
    return marks


def _harmful(call: BackwardCall) -> list[BadOp]:
    """Return the forward results that were not finite and did harm.

    Infinities that another op took in and turned into a finite result are left out, as softmax does with a mask of
    -inf. Users of a result are found along edges, through views.
    """
    wrong = {i: op for op in call.bad_ops for i in _nodes_of(call, op)}
    users: dict[int, list[int]] = {}
    for i, run in enumerate(call.nodes) if wrong else ():
        for edge in run.node.edges:
            if edge is not None:
                users.setdefault(edge[0], []).append(i)
    roots = {r.node for r in call.roots}
    harmful = {id(op) for op in call.bad_ops if op.output.nan}
    # From the last op backwards: an op is harmful if one that used its result is, or if no op used it.
    for op in sorted(call.bad_ops, key=lambda op: -op.seq):
        nodes = _nodes_of(call, op)
        stack, seen, used = [*nodes], set(nodes), False
        while stack and id(op) not in harmful:
            node = stack.pop()
            if node in roots:
                harmful.add(id(op))
            for user in users.get(node, ()):
                if user in seen:
                    continue
                seen.add(user)
                by = wrong.get(user)
                if by is not None and id(by) in harmful:
                    harmful.add(id(op))
                elif by is op or (by is None and info(call.nodes[user].name).reshapes):
                    stack.append(user)
                used = True
        if not used:
            harmful.add(id(op))
    return [op for op in call.bad_ops if id(op) in harmful]


def _nodes_of(call: BackwardCall, op: BadOp) -> list[int]:
    """Return the nodes that an op made: those with its sequence numbers."""
    return [i for i, r in enumerate(call.nodes) if op.first <= r.node.seq <= op.seq]


def _notes(call: BackwardCall) -> dict[int, list[str]]:
    """Return lines of text about nodes with bad values or errors, by node."""
    notes: dict[int, list[str]] = {}
    for bad in call.bad_nodes[:8]:
        notes.setdefault(bad.node, []).extend(_about_node(bad))
    harmful = {id(op) for op in _harmful(call)}
    for op in call.bad_ops[:8]:
        lines = [f"The forward result of {op.op} held {op.output}."]
        if id(op) in harmful:
            lines += [_about_tensor("given", t) for t in op.inputs]
        else:
            lines[0] += " What was made of it is finite, as of a mask."
        for i in _nodes_of(call, op):
            notes.setdefault(i, []).extend(lines)
    if call.raised is not None and call.raised.node is not None:
        notes.setdefault(call.raised.node, []).append(f"Raised {call.raised.type}: {call.raised.text}")
    return notes


def _about_node(bad: BadNode) -> list[str]:
    """Return lines of text about a node that made a bad gradient, and its saved tensors."""
    zero = " from gradients that were exactly zero" if bad.zero_incoming else ""
    return [
        f"Its gradient number {bad.output} held {bad.values}{zero}.",
        *(_about_tensor("saved", t) for t in bad.saved),
    ]


def _about_tensor(role: str, stat: TensorStat) -> str:
    """Return a line of text about a tensor: role, name, shape, bad values and zeros."""
    values = f", {stat.bad}" if stat.bad else ""
    zeros = f", {stat.zeros:,} zeros" if stat.zeros else ""
    return f"{role} {stat.name}: {shape(stat.shape)} {stat.dtype.removeprefix('torch.')}{values}{zeros}"


def with_means(
    rows: list[dict[str, object]], calls: Sequence[BackwardCall], layouts: Sequence[int]
) -> list[dict[str, object]]:
    """Add to `rows` of layouts the mean time of each node over the calls with that layout, and the number of such
    calls.

    :param layouts: the layout of each of `calls`.
    """
    for number, row in enumerate(rows):
        mine = [call for call, layout in zip(calls, layouts, strict=True) if layout == number]
        times = [[r.seconds for r in by if r.seconds is not None] for by in zip(*(c.nodes for c in mine), strict=True)]
        row["time"] = column("f", [sum(t) / len(t) if t else -1.0 for t in times])
        row["timed"] = max(map(len, times), default=0)
    return rows


def node_of(calls: Sequence[BackwardCall], finding: Finding) -> tuple[int, int] | None:
    """Return the node that a finding is about: the index of the call among `calls`, and of the node; ``None`` if none
    fits.
    """
    for number, call in enumerate(calls):
        if finding.step is not None and call.step != finding.step:
            continue
        sites = {s.site for s in finding.sites}
        best: tuple[int, int] | None = None
        for i, run in enumerate(call.nodes):
            if finding.node is not None and run.name != finding.node:
                continue
            if finding.node is None and run.parameter not in finding.parameters[:1]:
                continue
            fits = (run.module == finding.module) + (run.site in sites)
            if fits and (best is None or fits > best[0]):
                best = (fits, i)
        if best is not None:
            return number, best[1]
    return None
