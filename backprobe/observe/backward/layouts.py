"""Graphs as steps share them: a graph is looked up once, and compared with the last ones after that."""

from __future__ import annotations

from typing import Any

import torch

from ...graphs.plan import Plan
from ...packed import Layout, Signature
from ...records import ACCUMULATE_SEQ, Node, Unseen
from ...torch_texts import COMPILED
from ...torchside.walk import LiveGraph
from ..forward.leaves import Leaf
from ..forward.naming import Naming
from ..forward.oplog import Entry, OpLog
from ..forward.origins import line_and_op, makers
from .program import Program


class LiveLayout:
    """A graph as the session compares it, step after step; ``layout`` is the record."""

    def __init__(
        self,
        graph: LiveGraph,
        ops: tuple[list[int], list[Entry]],
        leaves: list[int],
        needed: frozenset[int] | None,
        named: dict[int, Leaf],
        index: int,
    ) -> None:
        self.plan, self.seqs, self.needed, self.index = graph.plan, graph.seqs, needed, index
        self.base = graph.span[0]
        self.leaves = leaves
        self.ends, self.entries = ops
        self.seq_set = frozenset(graph.seqs)
        #: Accumulator -> its leaf.
        self.named = named
        #: Whether every leaf has been seen to get a gradient that is not zero.
        self.settled = False
        self.signature: Signature | None = None
        #: What the next call without close looks is expected to measure.
        self.program: Program | None = None
        self._made: tuple[int, Layout] | None = None

    def fits(
        self, plan: Plan, seqs: list[int], base: int, entries: list[Entry], leaves: list[int], needed: Any
    ) -> bool:
        if plan is not self.plan or leaves != self.leaves or needed != self.needed:
            return False
        shift = base - self.base
        if shift:
            if [s - shift if s != ACCUMULATE_SEQ else s for s in seqs] != self.seqs:
                return False
        elif seqs != self.seqs:
            return False
        return entries == self.entries

    def layout(self, names: Naming) -> Layout:
        """The record, made again when the names of modules have changed."""
        modules, leaves, frames = names.modules, names.leaves, names.frames
        if self._made is not None and self._made[0] == modules.naming:
            return self._made[1]
        nodes = []
        found = dict(makers(self.seqs, self.ends, self.entries))
        for i, name in enumerate(self.plan.names):
            seq, entry, edges = self.seqs[i], found.get(i), tuple(self.plan.edges(i))
            if seq == ACCUMULATE_SEQ:
                leaf = self.named.get(i)
                title = leaves.name(leaf) if leaf is not None else None
                shape = leaf.shape if leaf is not None and leaf.root is not None else None
                nodes.append(Node(i, name, seq, None, 1, None, "", title, edges, shape))
            elif entry is None:
                nodes.append(Node(i, name, seq - self.base, None, 1, None, "", None, edges))
            else:
                where = entry[3]
                module, call = modules.name_of(where), where.call if where else 1
                place, inside = line_and_op(entry, frames), frames.inside(entry[4])
                nodes.append(Node(i, name, seq - self.base, module, call, *place, None, edges, None, inside))
        made = Layout(tuple(nodes), self.needed)
        self._made = (modules.naming, made)
        return made


class Layouts:
    """The layouts of the last calls."""

    def __init__(self, log: OpLog, names: Naming) -> None:
        self._log, self._names = log, names
        self._layouts: list[LiveLayout] = []
        self._count = 0
        self._compiled = 0
        #: Gradients that have no shape to be noted.
        self.unshaped = 0

    def get(self, graph: LiveGraph, needed: frozenset[int] | None) -> LiveLayout:
        """The layout of `graph`, of which `needed` run: one of the last, or a new one."""
        seqs, leaves = graph.seqs, graph.leaves
        base, top = graph.span
        ops = self._log.slice(base, top)
        # A plain tensor that needs a gradient may be new every step (an adversarial input): any will do in its place.
        ids = [id(v) if v.__class__ is not torch.Tensor else 0 for _, v in leaves]
        for at, live in enumerate(self._layouts):
            if live.fits(graph.plan, seqs, base, ops[1], ids, needed):
                if at:
                    self._layouts.insert(0, self._layouts.pop(at))
                return live
        self._compiled += any(n.startswith(COMPILED) for n in graph.plan.names)
        named = {i: self._names.leaves.get(v) for i, v in leaves}
        live = LiveLayout(graph, ops, ids, needed, named, self._count)
        self._count += 1
        self._layouts.insert(0, live)
        del self._layouts[16:]
        return live

    def unseen(self) -> list[Unseen]:
        found = []
        if self._compiled:
            found.append(Unseen("compiled regions", self._compiled, "each shows as one node; its inside was not seen"))
        if self.unshaped:
            found.append(Unseen("gradients", self.unshaped, "nested tensors without a shape were not measured"))
        return found
