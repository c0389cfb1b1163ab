"""Compares a replay with the engine, or with float64, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from ..basics.errors import BackprobeError
from ..torch_internals import private
from . import html
from .backward_graph import BackwardGraph, NodeInfo
from .calling import call_node_wide
from .difference import bitwise_equal, combined, difference
from .nested import nothing_accumulated
from .runner import ReplayedNode
from .single import hooks_of
from .start import Start


@dataclass(frozen=True)
class NodeParity:
    """The comparison of one node.

    :ivar status: ``"identical"`` (bitwise; if one of the two is in float64: the same values), ``"different"`` or ``"not
        compared"``.
    :ivar difference: the largest difference of two elements of a gradient.
    :ivar error: norm of the difference over all gradients of the node, relative to their norm in the engine (in
        float64, for rounding errors).
    :ivar reason: why it was not compared, or why a difference is to be expected.
    """

    node: NodeInfo
    status: str
    difference: float | None = None
    error: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        """Return the comparison as one line of text."""
        text = f"{self.node}: {self.status}"
        if self.status == "different" and self.error is not None:
            text += f", off by {self.error:.2g} (largest difference {self.difference:.2g})"
        elif self.status == "different":
            text += ", in shape, dtype or None"
        return text + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Parity:
    """The comparisons of all nodes, in the order in which they ran.

    :ivar against: the reference: ``"the engine"`` or ``"float64"``.
    :ivar same_order: whether the engine ran the nodes in the same order; ``None`` if not checked.
    """

    nodes: list[NodeParity]
    against: str
    same_order: bool | None = None

    @property
    def identical(self) -> bool:
        """Whether all nodes were compared and are bitwise equal."""
        return all(node.status == "identical" for node in self.nodes)

    @property
    def different(self) -> list[NodeParity]:
        """The nodes that differ."""
        return [node for node in self.nodes if node.status == "different"]

    @property
    def not_compared(self) -> list[NodeParity]:
        """The nodes that were not compared."""
        return [node for node in self.nodes if node.status == "not compared"]

    @property
    def first(self) -> NodeParity | None:
        """The first node that differs."""
        return next(iter(self.different), None)

    @property
    def worst(self) -> NodeParity | None:
        """The node with the largest ``error``."""
        known = [node for node in self.nodes if node.error is not None]
        return max(known, key=lambda node: node.error or 0.0, default=None)

    def __str__(self) -> str:
        """Return the counts, and the nodes that are not identical, as text."""
        count = len(self.nodes)
        lines = [
            f"{count} nodes against {self.against}: {count - len(self.different) - len(self.not_compared)} identical"
        ]
        lines[0] += f", {len(self.different)} different, {len(self.not_compared)} not compared"
        if self.same_order is False:
            lines.append("  the engine ran them in another order")
        rest = [node for node in self.nodes if node.status != "identical"]
        rest.sort(key=lambda node: -(node.error or 0.0))
        lines += [f"  {node}" for node in rest[:20]]
        if len(rest) > 20:
            lines.append(f"  ... {len(rest) - 20} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the nodes that are not identical as an HTML table, for notebooks."""
        rows = [node for node in self.nodes if node.status != "identical"][:50]
        heads = ("node", "status", "off by", "largest difference", "why")
        cells = [(n.node, n.status, n.error, n.difference, n.reason) for n in rows]
        return html.table(str(self).splitlines()[0], heads, cells)


@dataclass
class EngineRun:
    """A run in the engine: node -> (incoming, outgoing gradients), in its order."""

    nodes: dict[int, tuple[tuple[torch.Tensor | None, ...], tuple[torch.Tensor | None, ...] | None]] = field(
        default_factory=dict
    )
    order: list[int] = field(default_factory=list)


def engine_run(start: Start) -> EngineRun:
    """Run the backward in the engine, without adding to ``.grad``, and return the gradients at each node."""
    graph, found = start.graph, EngineRun()
    handles: list[torch.utils.hooks.RemovableHandle] = []
    number: list[int] = []
    try:
        for i, node in enumerate(graph.nodes):
            if graph.runs(i):
                watch = _Watch(found, i, number)
                handles += [node.register_prehook(watch.before), node.register_hook(watch.after)]
        with nothing_accumulated([n for i, n in enumerate(graph.nodes) if graph.runs(i)]):
            edges, grads, asked = start.edges()
            if start.inputs is None or asked:
                private.run_engine(edges, grads, True, start.create_graph, asked, True, not asked)
    finally:
        for handle in handles:
            handle.remove()
    return found


class _Watch:
    """Records a node's incoming and outgoing gradients, in its own call only."""

    __slots__ = ("_found", "_i", "_number")

    def __init__(self, found: EngineRun, i: int, number: list[int]) -> None:
        """Take the object to fill, the number of the node, and a list that holds the id of our backward call once it is
        known.
        """
        self._found, self._i, self._number = found, i, number

    def before(self, incoming: Iterable[torch.Tensor | None]) -> None:
        """Note that the node runs now, and its incoming gradients. A prehook."""
        if not self._number:
            self._number.append(private.graph_task())
        if private.graph_task() == self._number[0]:
            self._found.order.append(self._i)
            self._found.nodes[self._i] = (tuple(incoming), None)

    def after(self, outgoing: Iterable[torch.Tensor | None], incoming: Iterable[torch.Tensor | None]) -> None:
        """Note the node's outgoing gradients. A posthook."""
        if private.graph_task() == self._number[0] and self._found.nodes[self._i][1] is None:
            self._found.nodes[self._i] = (self._found.nodes[self._i][0], tuple(outgoing))


def compared(graph: BackwardGraph, runs: Sequence[ReplayedNode], engine: EngineRun) -> Parity:
    """Compare the gradients at each replayed node with those of the engine.

    :returns: a row for each node, and whether the nodes ran in the same order.
    """
    rows = []
    for ran in runs:
        reason = (
            "" if ran.how == "engine" else f"it ran by {ran.how}" if ran.how.startswith("rule") else "it ran in float64"
        )
        if ran.edited:
            reason = "a gradient was replaced here"
        reason = ran.note or reason
        if ran.node.index not in engine.nodes:
            rows.append(NodeParity(ran.node, "not compared", reason="the engine did not run it"))
            continue
        incoming, outgoing = engine.nodes[ran.node.index]
        rows.append(
            _row(
                ran.node,
                (*ran.grad_outputs, *ran.grad_inputs),
                (*incoming, *(outgoing or ())),
                reason,
                exact=ran.how != "float64",
            )
        )
    order = [ran.node.index for ran in runs]
    return Parity(rows, "the engine", engine.order[: len(order)] == order)


def rounding(start: Start, runs: Sequence[ReplayedNode]) -> Parity:
    """Run each replayed node by itself in float64, and compare: the differences are its rounding errors."""
    rows = []
    for ran in runs:
        if ran.node.seq is None:
            continue
        if ran.how != "engine":
            rows.append(NodeParity(ran.node, "not compared", reason=f"it ran by {ran.how}"))
            continue
        node = start.graph.nodes[ran.node.index]
        if hooks_of(node, node.register_hook):
            why = "a hook of its own runs after it: what the node itself gave is not known"
            rows.append(NodeParity(ran.node, "not compared", reason=why))
            continue
        try:
            with torch.no_grad():
                wide = call_node_wide(node, ran.node, ran.grad_outputs)
        except BackprobeError as error:
            rows.append(NodeParity(ran.node, "not compared", reason=str(error)))
            continue
        wanted = start.wanted(ran.node.index)
        wide = tuple(g if wanted is None or k in wanted else None for k, g in enumerate(wide))
        rows.append(_row(ran.node, ran.produced, wide, "", exact=False))
    return Parity(rows, "float64")


def _row(
    info: NodeInfo,
    ours: Sequence[torch.Tensor | None],
    theirs: Sequence[torch.Tensor | None],
    reason: str,
    exact: bool = True,
) -> NodeParity:
    """Return the comparison of one node's gradients: `ours` with `theirs`.

    :param exact: bitwise; otherwise by value.
    """
    same = len(ours) == len(theirs) and all(
        bitwise_equal(a, b) if exact else _equal(a, b) for a, b in zip(ours, theirs, strict=True)
    )
    if same:
        return NodeParity(info, "identical", 0.0, 0.0, reason)
    far = combined(difference(a, b) for a, b in zip(ours, theirs, strict=False))
    if far is None:
        return NodeParity(info, "different", reason=reason)
    return NodeParity(info, "different", far.largest, far.error, reason)


def _equal(a: object, b: object) -> bool:
    """Return whether two gradients have the same values, in any precision."""
    far = difference(a, b)
    return (a is None and b is None) or (far is not None and far.largest == 0.0)
