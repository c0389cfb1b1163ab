"""The differences between two graphs, such as two steps, eager and compiled, or before and after a code change.

Nodes are paired within each module call, by type, in forward order; leaves are paired by name. Within a call this
aligns two sequences; very long ones are first split at types that occur once on each side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING

from ..basics.text import without_controls
from .data import Node

if TYPE_CHECKING:
    from .graph import Graph

#: Maximum length of sequences that are compared element by element; longer ones are split, and finally paired greedily.
MAX_COMPARED_LENGTH = 400
Pair = tuple[int, int]


@dataclass(frozen=True)
class Change:
    """A node that both graphs have, and its differences: each line gives the value before and after."""

    before: Node
    after: Node
    what: tuple[str, ...]


@dataclass(frozen=True)
class GraphDiff:
    """The differences between two graphs. Empty, and false, if there are none; ``str`` gives it as text."""

    removed: tuple[Node, ...]
    added: tuple[Node, ...]
    changed: tuple[Change, ...]
    same: int

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed)

    def __str__(self) -> str:
        if not self:
            return f"no difference in {self.same} nodes"
        lines = [
            f"{len(self.removed)} nodes removed, {len(self.added)} added, {len(self.changed)} changed, "
            f"{self.same} the same"
        ]
        for sign, nodes in (("-", self.removed), ("+", self.added)):
            groups: dict[str, list[Node]] = defaultdict(list)
            for node in nodes:
                groups[_where(node)].append(node)
            for where, members in groups.items():
                counts = Counter(node.parameter or node.name for node in members)
                what = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in counts.items())
                lines.append(f"{sign} {where}: {what}")
        lines += [
            f"~ {_where(c.before)}: {c.before.parameter or c.before.name}: {'; '.join(c.what)}" for c in self.changed
        ]
        return without_controls("\n".join(lines), lines=True)


def _where(node: Node) -> str:
    """Return where a node was made, as text: "leaves", its module call, or its line."""
    if node.kind == "accumulate":
        return "leaves"
    if node.module is None:
        return str(node.site) if node.site else "outside of modules"
    return (node.module or "the model") + (f":{node.call}" if node.call > 1 else "")


def compare(a: Graph, b: Graph) -> GraphDiff:
    """Return the differences between two graphs; see ``Graph.compare``.

    Nodes are paired within the same module call; leaves by name.
    """
    groups: dict[object, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, graph in ((0, a), (1, b)):
        for i in _forward(graph):
            leaf = graph.facts.leaves.get(i)
            key: object
            if leaf is not None and leaf.name is not None:
                key = ("leaf", leaf.name)
            elif leaf is not None:
                key = ("leaf",)
            else:
                call = graph.call_of(i)
                key = (graph.calls[call].path, graph.calls[call].call) if call >= 0 else None
            groups[key][side].append(i)
    pairs: list[Pair] = []
    for left, right in groups.values():
        pairs += [(left[k], right[m]) for k, m in align([a.type(i) for i in left], [b.type(i) for i in right])]
    pairs.sort()
    mine, its = {i for i, _ in pairs}, {i for _, i in pairs}
    other = dict(pairs)
    changed = [c for i, k in pairs if (c := _change(a[i], b[k], other, (a, b))) is not None]
    return GraphDiff(
        tuple(a[i] for i in _forward(a) if i not in mine),
        tuple(b[i] for i in _forward(b) if i not in its),
        tuple(changed),
        len(pairs) - len(changed),
    )


def _forward(graph: Graph) -> list[int]:
    """Return the indices of all nodes in forward order."""
    return sorted(range(len(graph)), key=lambda i: (graph.columns.seqs[i], i))


def _change(x: Node, y: Node, other: dict[int, int], graphs: tuple[Graph, Graph]) -> Change | None:
    """Return the differences between two paired nodes; ``None`` if there are none.

    :param other: for each node of the first graph, its partner in the second.
    """
    what = []
    if x.inputs != y.inputs:
        what.append(f"{_shapes(x)} became {_shapes(y)}")
    if (x.freed is True) != (y.freed is True):
        what.append("freed now" if y.freed else "was freed")
    elif [(s.name, s.meta, s.role, s.hook) for s in x.saved] != [(s.name, s.meta, s.role, s.hook) for s in y.saved]:
        what.append(f"saved {_saved(x)}, saves {_saved(y)}")
    mine = [None if e is None else (other.get(e[0], -1), e[1]) for e in x.edges]
    if mine != list(y.edges):
        go = [_name(graphs[1], e) for e in y.edges]
        went = [_name(graphs[0], e) for e in x.edges]
        what.append(f"its gradients went to {', '.join(went)}; now to {', '.join(go)}")
    return Change(x, y, tuple(what)) if what else None


def _name(graph: Graph, edge: tuple[int, int] | None) -> str:
    """Return the target of an edge as text: name or type, and index."""
    if edge is None:
        return "nowhere"
    leaf = graph.facts.leaves.get(edge[0])
    return (leaf.name if leaf is not None and leaf.name else graph.type(edge[0])) + f" ({edge[0]})"


def _shapes(node: Node) -> str:
    """Return the shapes of a node's incoming gradients as text."""
    return ", ".join(map(str, node.inputs)) or "nothing"


def _saved(node: Node) -> str:
    """Return the saved tensors of a node as text."""
    return ", ".join(f"{s.name} {s.meta or s.hook}" for s in node.saved) or "nothing"


def align(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Return pairs of positions in `a` and `b` with equal labels, ascending on both sides.

    Short stretches are compared exactly; longer ones are split at labels that occur once, or paired greedily.
    """
    found: list[Pair] = []
    stack = [(0, len(a), 0, len(b))]
    while stack:
        lo, hi, low, high = stack.pop()
        while lo < hi and low < high and a[lo] == b[low]:
            found.append((lo, low))
            lo, low = lo + 1, low + 1
        while lo < hi and low < high and a[hi - 1] == b[high - 1]:
            hi, high = hi - 1, high - 1
            found.append((hi, high))
        if lo == hi or low == high:
            continue
        if hi - lo <= MAX_COMPARED_LENGTH and high - low <= MAX_COMPARED_LENGTH:
            for block in SequenceMatcher(None, a[lo:hi], b[low:high], autojunk=False).get_matching_blocks():
                found += [(lo + block.a + k, low + block.b + k) for k in range(block.size)]
            continue
        anchors = _anchors(a, b, lo, hi, low, high)
        if anchors:
            edges = [(lo - 1, low - 1), *anchors, (hi, high)]
            found += anchors
            stack += [(x + 1, p, y + 1, q) for (x, y), (p, q) in pairwise(edges)]
            continue
        found += _in_order(a, b, lo, hi, low, high)
    return sorted(found)


def _anchors(a: Sequence[str], b: Sequence[str], lo: int, hi: int, low: int, high: int) -> list[Pair]:
    """Return pairs of positions of labels that occur once on each side, ascending on both (patience diff).

    :param lo, hi: the range of positions in `a`; `low`, `high`: in `b`.
    """
    once = {label for label, n in Counter(a[lo:hi]).items() if n == 1}
    once &= {label for label, n in Counter(b[low:high]).items() if n == 1}
    place = {b[k]: k for k in range(low, high) if b[k] in once}
    tops: list[Pair] = []
    before: dict[Pair, Pair | None] = {}
    for i in range(lo, hi):
        if a[i] in once:
            pair = (i, place[a[i]])
            left, right = 0, len(tops)
            while left < right:
                middle = (left + right) // 2
                if tops[middle][1] < pair[1]:
                    left = middle + 1
                else:
                    right = middle
            before[pair] = tops[left - 1] if left else None
            tops[left : left + 1] = [pair]
    chain: list[Pair] = []
    at: Pair | None = tops[-1] if tops else None
    while at is not None:
        chain.append(at)
        at = before[at]
    return chain[::-1]


def _in_order(a: Sequence[str], b: Sequence[str], lo: int, hi: int, low: int, high: int) -> list[Pair]:
    """Pair greedily: each position of `a` with the next position of `b`, at most 64 ahead, that has the same label."""
    found = []
    for i in range(lo, hi):
        for k in range(low, min(low + 64, high)):
            if a[i] == b[k]:
                found.append((i, k))
                low = k + 1
                break
    return found
