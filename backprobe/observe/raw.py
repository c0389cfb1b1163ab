"""What the session hands on: a backward call as it was seen, turned into records when somebody reads them.

Names of modules are worked out then, not before (N9): a script that trains one module until step 100 and two from
there gets the same names throughout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ..graph.plan import Plan
from ..packed import Layout, Packed, PackedNodes, Signature
from ..records import ACCUMULATE_SEQ, BackwardCall, BadNode, BadOp, Mutation, Node, Raised, Reuse, Root, Site
from .backward import Program
from .eye import Entry, SeenBad, op_name, spot_of
from .frames import Frames
from .leaves import Leaf, Leaves
from .modules import ModuleWatch
from .writes import SeenMutation


class LiveLayout:
    """A graph as the session compares it, step after step; ``layout`` is the record."""

    def __init__(
        self,
        plan: Plan,
        seqs: list[int],
        base: int,
        ends: list[int],
        entries: list[Entry],
        leaves: list[int],
        needed: frozenset[int] | None,
        named: dict[int, Leaf],
        index: int,
    ) -> None:
        self.plan, self.base, self.needed, self.index = plan, base, needed, index
        self.seqs, self.entries, self.leaves = seqs, entries, leaves
        self.ends = ends
        self.seq_set = frozenset(seqs)
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

    def layout(self, modules: ModuleWatch, leaves: Leaves, frames: Frames) -> Layout:
        """The record, made again when the names of modules have changed."""
        if self._made is not None and self._made[0] == modules.naming:
            return self._made[1]
        nodes = []
        at = 0
        order = sorted(range(len(self.seqs)), key=self.seqs.__getitem__)
        found: dict[int, Entry | None] = {}
        for i in order:  # both lists ascend: one pass
            seq = self.seqs[i]
            if seq == ACCUMULATE_SEQ:
                found[i] = None
                continue
            while at < len(self.ends) and self.ends[at] <= seq:
                at += 1
            found[i] = self.entries[at] if at < len(self.ends) else None
        for i, name in enumerate(self.plan.names):
            seq, entry, edges = self.seqs[i], found[i], tuple(self.plan.edges(i))
            if seq == ACCUMULATE_SEQ:
                leaf = self.named.get(i)
                title = leaves.name(leaf) if leaf is not None else None
                shape = leaf.shape if leaf is not None and leaf.root is not None else None
                nodes.append(Node(i, name, seq, None, 1, None, "", title, edges, shape))
            elif entry is None:
                nodes.append(Node(i, name, seq - self.base, None, 1, None, "", None, edges))
            else:
                where = entry[3]
                nodes.append(
                    Node(
                        i,
                        name,
                        seq - self.base,
                        modules.name_of(where),
                        where.call if where else 1,
                        frames.site(spot_of(entry)),
                        op_name(entry[2]) if entry[2] is not None else "",
                        None,
                        edges,
                    )
                )
        made = Layout(tuple(nodes), self.needed)
        self._made = (modules.naming, made)
        return made


@dataclasses.dataclass
class Recorded:
    """One backward call. ``record()`` gives it as a ``BackwardCall``."""

    index: int
    step: int
    kind: str
    arguments: dict[str, str]
    roots: tuple[Root, ...]
    site: Site | None
    seconds: float
    raised: Raised | None
    live: LiveLayout
    signature: Signature
    norms: Sequence[float]
    times: Sequence[float]
    unmeasured: frozenset[int]
    bad: dict[int, Any]
    bad_nodes: tuple[BadNode, ...]
    bad_seen: tuple[SeenBad, ...]
    base: int
    inside: int | None
    modules: ModuleWatch
    leaves: Leaves
    frames: Frames
    mutated: SeenMutation | None = None
    #: What its tensor is called: (root, name) of a parameter or buffer, or a variable.
    named: Any = None
    reuse: Reuse | None = None
    #: The line of the checkpoint that kept what was changed.
    region: Site | None = None

    def _mutation(self) -> Mutation | None:
        seen = self.mutated
        if seen is None:
            return None
        named = self.named
        if isinstance(named, tuple):
            tensor = self.modules.full_name(*named)
        elif named:
            tensor = named
        elif seen.producer and seen.producer not in ("AsStrided", "CopySlices"):
            tensor = f"output of {seen.producer}"
        else:
            tensor = "a tensor"
        write = seen.write
        return Mutation(
            tensor,
            seen.shape,
            seen.saved_version,
            seen.found_version,
            write.op if write else "",
            self.frames.site(write.spot) if write else None,
            self.modules.name_of(write.where) if write else None,
            self.region,
        )

    def _bad_op(self, seen: SeenBad) -> BadOp:
        where = seen.entry[3]
        return BadOp(
            seen.first - self.base,
            seen.last - self.base,
            op_name(seen.entry[2]),
            self.frames.site(spot_of(seen.entry)),
            self.modules.name_of(where),
            where.call if where else 1,
            seen.output,
            seen.inputs,
            self._bad_op(seen.origin) if seen.origin is not None else None,
        )

    def packed(self) -> Packed:
        return Packed(
            self.live.layout(self.modules, self.leaves, self.frames),
            self.signature,
            self.norms,
            self.times,
            self.unmeasured,
            self.bad,
            self.raised is not None,
        )

    @cached_property
    def trouble(self) -> bool:
        """Whether anything in it asks for a closer look."""
        return bool(self.bad or self.raised or any(r.bad for r in self.roots))

    def record(self) -> BackwardCall:
        nodes = PackedNodes(self.packed())
        bad_nodes = self.bad_nodes
        if self.bad and not bad_nodes:
            bad_nodes = culprits(nodes)
        ops = tuple(self._bad_op(s) for s in self.bad_seen)
        return BackwardCall(
            self.index,
            self.step,
            self.kind,
            self.arguments,
            self.roots,
            self.site,
            self.seconds,
            self.raised,
            nodes,
            bad_nodes,
            ops,
            self.inside,
            self._mutation(),
            self.reuse,
        )


def culprits(nodes: Sequence[Any]) -> tuple[BadNode, ...]:
    """Nodes that got finite gradients only and gave one that is not, in the order they ran."""
    found = []
    for run in sorted((r for r in nodes if r.order is not None), key=lambda r: r.order):
        if any(g is not None and g.bad for g in run.grad_outputs):
            continue
        for k, g in enumerate(run.grad_inputs):
            if g is not None and g.bad:
                found.append(BadNode(run.node.index, k, g.bad, False, ()))
                break
    return tuple(found)
