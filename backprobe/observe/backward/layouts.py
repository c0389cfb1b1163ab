"""Graph layouts shared by steps.

A new graph is compared with the last layouts, and its lines are looked up only if it differs from all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import torch

from ...basics.torch_texts import COMPILED
from ...graphs.packed_calls import Layout, Signature
from ...graphs.plan import Plan
from ...records import ACCUMULATE_SEQ, Node, Site, Unseen
from ...source.frames import Frames
from ...torch_internals import private
from ...torch_internals.walk import LiveGraph
from ..forward.leaves import LeafTensor
from ..forward.naming import Naming
from ..forward.node_places import line_and_op, makers
from ..forward.oplog import UNKNOWN, Entry, OpLog
from ..schedule.new_line_scanner import NewLineScanner
from .layout_matching import (
    candidate_lines,
    from_lines_that_ran,
    from_names,
    from_neighbours,
    from_new_lines,
    matching_positions,
    partly_matched,
)
from .measurement_plan import MeasurementPlan


class LiveLayout:
    """A graph layout in the form that the session compares; ``layout`` gives the record."""

    def __init__(
        self,
        graph: LiveGraph,
        ops: tuple[list[int], list[Entry]],
        first: int,
        leaves: list[int],
        needed: frozenset[int] | None,
        named: dict[int, LeafTensor],
        index: int,
    ) -> None:
        """Store what identifies the layout of `graph`.

        :param ops: the op log's slice for the graph: node counters after the ops, and their entries.
        :param first: nodes with a lower number are older than the op log.
        :param leaves: ids of the leaves; `named`: the leaves by the position of their accumulator.
        :param needed: the nodes that run; ``None``: all.
        """
        self.plan, self.seqs, self.needed, self.index = graph.plan, graph.seqs, needed, index
        self.base = graph.span[0]
        self.leaves = leaves
        #: The leaves that `leaves` has the ids of: an id counts while they live.
        self._refs = [private.tensor_ref(v) for _, v in graph.leaves if v.__class__ is not torch.Tensor]
        self.ends, self.entries = ops
        #: Nodes with a lower number are older than the op log.
        self.first = first
        self.seq_set = frozenset(graph.seqs)
        #: Maps accumulators to their leaves.
        self.named = named
        #: Whether every leaf has been seen to get a gradient that is not zero.
        self.has_all_gradients = False
        self.signature: Signature | None = None
        #: What the next call that is not inspected closely is expected to measure.
        self.measurement_plan: MeasurementPlan | None = None
        self._cached_layout: tuple[int, Layout] | None = None
        self._cached_order: tuple[list[str], list[Entry]] | None = None

    def equals(
        self, plan: Plan, seqs: list[int], base: int, entries: list[Entry], leaves: list[int], needed: object
    ) -> bool:
        """Return whether a graph with these properties has this layout: the same structure, lines and leaves."""
        if plan is not self.plan or leaves != self.leaves or needed != self.needed:
            return False
        return self._has_numbering(seqs, base) and entries == self.entries and self._is_alive()

    def _is_alive(self) -> bool:
        """Return whether no leaf has been freed, so that its id can be that of no other tensor."""
        return all(ref() is not None for ref in self._refs)

    def _has_numbering(self, seqs: list[int], base: int) -> bool:
        """Return whether sequence numbers `seqs`, counted from `base`, are those of this layout."""
        shift = base - self.base
        return [s - shift if s != ACCUMULATE_SEQ else s for s in seqs] == self.seqs if shift else seqs == self.seqs

    def has_structure(self, plan: Plan, seqs: list[int], base: int, leaves: list[int], needed: object) -> bool:
        """Return whether this layout has the structure, leaves and numbering of a graph whose lines are not known."""
        same = plan is self.plan and leaves == self.leaves and needed == self.needed
        return same and self._has_numbering(seqs, base) and self._is_alive()

    def has_same_lines(self, other: LiveLayout) -> bool:
        """Return whether the same lines made the nodes of both layouts."""
        return self._names_and_entries() == other._names_and_entries()

    def matches(self, names: list[str]) -> list[tuple[int, int]]:
        """Return the positions in `names`, which are in the order in which nodes were made, with this layout's nodes
        that match them.
        """
        return matching_positions(names, self._names_and_entries()[0])

    def matched_entries(self, pairs: list[tuple[int, int]], frames: Frames) -> tuple[dict[int, Entry], set[int]]:
        """Return the entries of the nodes in `pairs`, by position, and the doubtful positions.

        A position is doubtful if other nodes that its line made here match nothing: had the line run, it would have
        made them again.
        """
        entries = self._names_and_entries()[1]
        parts = partly_matched(entries, {i for _, i in pairs}, frames)
        return {at: entries[i] for at, i in pairs}, {at for at, i in pairs if i in parts}

    def named_entries(self) -> Iterable[tuple[str, Entry]]:
        """Return the name and the entry of each node."""
        return zip(*self._names_and_entries(), strict=True)

    def _names_and_entries(self) -> tuple[list[str], list[Entry]]:
        """Return the names of the graph's nodes and their log entries, in the order in which the forward made the
        nodes.
        """
        if self._cached_order is None:
            found = dict(makers(self.seqs, self.ends, self.entries, self.first))
            order = [i for i, seq in enumerate(self.seqs) if seq != ACCUMULATE_SEQ]
            order.sort(key=self.seqs.__getitem__)
            self._cached_order = [self.plan.names[i] for i in order], [found.get(i, UNKNOWN) for i in order]
        return self._cached_order

    def layout(self, names: Naming) -> Layout:
        """Return the graph as a record: nodes with names, modules, lines and edges.

        Cached until names of modules change.
        """
        modules, leaves, frames = names.modules, names.leaves, names.frames
        if self._cached_layout is not None and self._cached_layout[0] == modules.naming:
            return self._cached_layout[1]
        nodes = []
        found = dict(makers(self.seqs, self.ends, self.entries, self.first))
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
                where = modules.registered(entry[3]) or entry[3]
                module, call = modules.name_of(where), where.call if where else 1
                place, inside = line_and_op(entry, frames), frames.inside(entry[4])
                nodes.append(Node(i, name, seq - self.base, module, call, *place, None, edges, None, inside))
        made = Layout(tuple(nodes), self.needed)
        self._cached_layout = (modules.naming, made)
        return made


def _ids(leaves: list[tuple[int, object]]) -> list[int]:
    """Return ids of the leaves. Plain tensors count as equal: an adversarial input may be new in every step."""
    return [id(v) if v.__class__ is not torch.Tensor else 0 for _, v in leaves]


class Layouts:
    """The layouts of the last calls."""

    def __init__(self, log: OpLog, names: Naming, scanner: NewLineScanner) -> None:
        """Start without layouts."""
        self._log, self._names, self.scanner = log, names, scanner
        self._layouts: list[LiveLayout] = []
        self._count = 0
        #: Layouts with compiled regions.
        self.compiled_layouts = 0
        #: Nodes of the last compared graph that no layout contains.
        self.new_nodes: set[int] = set()
        #: Sequence numbers of the nodes of the last graph whose lines are inferred, since their forward was not
        #: recorded.
        self.inferred: frozenset[int] = frozenset()
        #: Gradients without a shape.
        self.unshaped = 0

    def get(self, graph: LiveGraph, needed: frozenset[int] | None) -> LiveLayout:
        """Return the layout of `graph`, of which the nodes `needed` run: one of the last, or a new one."""
        seqs, leaves = graph.seqs, graph.leaves
        base, top = graph.span
        ops = self._log.slice(base, top)
        ids = _ids(leaves)
        for at, live in enumerate(self._layouts):
            if live.equals(graph.plan, seqs, base, ops[1], ids, needed):
                if at:
                    self._layouts.insert(0, self._layouts.pop(at))
                return live
        self.compiled_layouts += any(n.startswith(COMPILED) for n in graph.plan.names)
        named = {i: self._names.leaves.get(v) for i, v in leaves}
        live = LiveLayout(graph, ops, self._log.first, ids, needed, named, self._count)
        self._count += 1
        self._layouts.insert(0, live)
        del self._layouts[16:]
        return live

    def repeated_layout(self, graph: LiveGraph, needed: frozenset[int] | None) -> LiveLayout | None:
        """Return the layout that `graph` repeats (Note [Steps that repeat]).

        Returns ``None`` if there is none, or several that were made at different lines.
        """
        seqs, base, ids = graph.seqs, graph.span[0], _ids(graph.leaves)
        found = [live for live in self._layouts if live.has_structure(graph.plan, seqs, base, ids, needed)]
        return found[0] if found and all(live.has_same_lines(found[0]) for live in found[1:]) else None

    def infer_lines(self, graph: LiveGraph, bounds: Sequence[int]) -> None:
        """Infer the lines of nodes that were made while ops were not recorded, and add them to the op log.

        The nodes are compared by name, in the order in which they were made, with the most similar layout. A node that
        the layout does not have gets a line only if it can be inferred, for example from lines that ran for the first
        time. Such a line also goes before one of the layout that made only a part of its nodes.

        :param bounds: node counters at the ends of calls: nodes made between two of them are compared on their own.
        """
        log, seqs, names = self._log, graph.seqs, graph.plan.names
        order = sorted((i for i, seq in enumerate(seqs) if seq != ACCUMULATE_SEQ), key=seqs.__getitem__)
        parts: dict[int, list[int]] = {}
        for i in order:
            if log.is_unknown(seqs[i]):
                parts.setdefault(bisect_right(bounds, seqs[i]), []).append(i)
        made: dict[int, Entry] = {}
        doubtful: set[int] = set()
        for part in parts.values():
            best: tuple[LiveLayout, list[tuple[int, int]]] | None = None
            for live in self._layouts:
                pairs = live.matches([names[i] for i in part])
                if pairs and (best is None or len(pairs) > len(best[1])):
                    best = live, pairs
                if best is not None and len(best[1]) == len(part):
                    break
            if best is not None:
                entries, doubtful_positions = best[0].matched_entries(best[1], self._names.frames)
                made |= {part[at]: entry for at, entry in entries.items()}
                doubtful |= {part[at] for at in doubtful_positions}
        unknown = {i for part in parts.values() for i in part}
        self.new_nodes = unknown - made.keys()
        self.inferred = frozenset(seqs[i] for i in unknown)
        if self.new_nodes:
            names_of, new_lines = {i: names[i] for i in self.new_nodes}, self.scanner.latest()
            for part in parts.values():
                undoubted = {i: entry for i, entry in made.items() if i not in doubtful}
                made |= from_lines_that_ran(part, names, undoubted, new_lines, self._names.frames)
            left = {i: name for i, name in names_of.items() if i not in made}
            made |= from_new_lines(left, new_lines, self._names.frames, made.values(), names)
        rest = {i: names[i] for i in self.new_nodes - made.keys()}
        if rest:
            made |= from_names(rest, (pair for live in self._layouts for pair in live.named_entries()))
        for part in parts.values() if self.new_nodes - made.keys() else ():
            made |= from_neighbours(part, names, made, self._names.frames)
        log.fill_in([(seqs[i], made[i]) for i in order if i in made])

    def candidates(self, graph: LiveGraph, i: int) -> tuple[Site, ...]:
        """Return the lines that may have made node `i`, the likeliest first; empty unless its line is only inferred."""
        name, seq = graph.plan.names[i], graph.seqs[i]
        if seq not in self.inferred:
            return ()
        logged = next((entry for _, entry in makers([seq], *self._log.slice(seq, seq), self._log.first)), UNKNOWN)
        same = (entry for live in self._layouts for one, entry in live.named_entries() if one == name)
        return candidate_lines(name, (logged, *same), self._names.frames)

    def unseen(self) -> list[Unseen]:
        """Return how many compiled regions and gradients without a shape were not observed in full."""
        found = []
        if self.compiled_layouts:
            found.append(
                Unseen(
                    "compiled regions",
                    self.compiled_layouts,
                    "each shows as one node; its inside is known only where it was run again",
                )
            )
        if self.unshaped:
            found.append(Unseen("gradients", self.unshaped, "nested tensors without a shape were not measured"))
        return found
