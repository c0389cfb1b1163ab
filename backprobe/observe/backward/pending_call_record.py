"""A backward call as it was observed, turned into a record when it is read.

Names of modules are resolved at that time, not before (Note [One reference per module call]): a script that trains one
module until step 100 and two from there gets the same names throughout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ...graphs.packed_calls import Packed, PackedNodes, Signature
from ...ops import info
from ...records import BackwardCall, BadNode, BadOp, FailedAllocation, Mutation, Raised, Reuse, Root, Site
from ...source.dataflow import singular_before
from ..forward.naming import Naming
from ..forward.nongraph_values import NonFiniteResult
from ..forward.oplog import op_name, spot_of
from ..forward.writes import ObservedMutation
from .layouts import LiveLayout
from .second import SecondOrder


@dataclasses.dataclass(frozen=True)
class Cause:
    """The cause of an error in a backward call, if it lies elsewhere.

    :ivar mutated: the saved tensor that was written in place.
    :ivar named: the name of that tensor: (root, name) of a parameter or buffer, or a variable.
    :ivar region: the line of the checkpoint that kept what was changed.
    :ivar carried: the earlier call that ran the node of that tensor, if it did not free its graph.
    :ivar reuse: the earlier call that freed a part of the graph.
    :ivar allocation: what was held when an allocation failed.
    """

    mutated: ObservedMutation | None = None
    named: Any = None
    region: Site | None = None
    carried: Reuse | None = None
    reuse: Reuse | None = None
    allocation: FailedAllocation | None = None

    def mutation(self, names: Naming) -> Mutation | None:
        """Return the record of the in-place write, with names and source lines; ``None`` if the cause is another
        one.
        """
        observed = self.mutated
        if observed is None:
            return None
        named = self.named
        if isinstance(named, tuple):
            tensor = names.modules.full_name(*named)
        elif named:
            tensor = named
        elif observed.producer and observed.producer not in ("AsStrided", "CopySlices"):
            tensor = f"output of {observed.producer}"
        else:
            tensor = "a tensor"
        write = observed.write
        return Mutation(
            tensor,
            observed.shape,
            observed.saved_version,
            observed.found_version,
            write.op if write else "",
            names.frames.site(write.spot) if write else None,
            names.modules.place_of(write.where) if write else None,
            self.region,
            write is not None and write.inferred,
            tuple(filter(None, map(names.frames.site, write.candidates))) if write else (),
            self.carried,
        )


@dataclasses.dataclass
class PendingCallRecord:
    """The observations of one backward call. ``record()`` turns them into a ``BackwardCall``."""

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
    nonfinite_results: tuple[NonFiniteResult, ...]
    base: int
    inside: int | None
    cause: Cause
    names: Naming
    second: SecondOrder

    def _bad_op(self, observed: NonFiniteResult) -> BadOp:
        """Return the record of a non-finite result, with its origin, names and source lines."""
        where = observed.entry[3]
        origin, guessed = None, observed.guessed
        if observed.origin is not None:
            origin, guessed = self._bad_op(observed.origin), guessed or observed.origin.guessed
        if origin is not None and info(origin.op).takes_python_values and origin.site is not None:
            line = singular_before(origin.site, self.names.frames)
            if line is not None and line != origin.site:
                origin, guessed = dataclasses.replace(origin, op="this line, as the code reads,", site=line), True
        name = self.names.leaves.name
        bad_leaves = [dataclasses.replace(stat, name=name(leaf)) for leaf, stat in observed.leaves]
        return BadOp(
            observed.first - self.base,
            observed.last - self.base,
            op_name(observed.entry[2]),
            self.names.frames.site(spot_of(observed.entry)),
            self.names.modules.place_of(where),
            where.call if where else 1,
            observed.output,
            (*observed.inputs, *bad_leaves),
            origin,
            guessed,
            observed.order,
        )

    def packed(self) -> Packed:
        """Return the measurements of the nodes in the form in which they are stored, with the layout."""
        return Packed(
            self.live.layout(self.names),
            self.signature,
            self.norms,
            self.times,
            self.unmeasured,
            self.bad,
            self.raised is not None,
        )

    @cached_property
    def has_trouble(self) -> bool:
        """Whether anything in the call calls for a closer inspection."""
        return bool(self.bad or self.raised or any(r.bad for r in self.roots))

    def record(self) -> BackwardCall:
        """Return the record of the call, with the names of modules as they are known now."""
        nodes = PackedNodes(self.packed())
        bad_nodes = self.bad_nodes
        if self.bad and not bad_nodes:
            bad_nodes = self.second.with_derivatives(culprits(nodes), lambda node: self.base + nodes[node].node.seq)
        ops = tuple(self._bad_op(s) for s in self.nonfinite_results)
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
            self.cause.mutation(self.names),
            self.cause.reuse,
            self.cause.allocation,
        )


def culprits(nodes: Sequence[Any]) -> tuple[BadNode, ...]:
    """Return nodes that got finite gradients only and gave a non-finite one, in the order in which they ran."""
    found = []
    for run in sorted((r for r in nodes if r.order is not None), key=lambda r: r.order):
        if any(g is not None and g.bad for g in run.grad_outputs):
            continue
        for k, g in enumerate(run.grad_inputs):
            if g is not None and g.bad:
                found.append(BadNode(run.node.index, k, g.bad, False, ()))
                break
    return tuple(found)
