"""Maps nodes that a backward with ``create_graph`` made to the forward ops whose derivatives they are."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...records import BadNode, Derivative
from ...torch_internals import code_objects
from ..forward.naming import Naming
from ..forward.node_places import line_and_op
from ..forward.oplog import Entry, OpLog

if TYPE_CHECKING:
    from .active_backward import ActiveBackward

#: The most nodes that are remembered.
MAX_REMEMBERED_NODES = 100_000


class SecondOrder:
    """A log of second-order nodes by sequence number, like ``OpLog`` for the forward."""

    def __init__(self, log: OpLog, names: Naming) -> None:
        """Start an empty log; `log` has the ops of the forward."""
        self._log, self._names = log, names
        self._ends: list[int] = []
        self._entries: list[Entry | None] = []
        #: Custom functions without a second derivative: the node counter at the end of their backward.
        self._nondifferentiable: deque[tuple[int, Entry]] = deque(maxlen=1000)

    def record_nodes(self, running: ActiveBackward) -> None:
        """Record the nodes that a finished call with ``create_graph`` made."""
        seqs, made = running.graph.seqs, running.watch.counters_after or ()
        if len(self._ends) > MAX_REMEMBERED_NODES:
            del self._ends[: MAX_REMEMBERED_NODES // 2], self._entries[: MAX_REMEMBERED_NODES // 2]
            self._entries[0] = None  # also for the nodes that were removed
        if made:
            self._ends.append(running.began_at)
            self._entries.append(None)
        for node, end in made:
            entry = self._entry_of(seqs[node]) or self._forward_entry(seqs[node])
            if entry is not None and code_objects.is_once(getattr(running.graph.nodes[node], "_forward_cls", None)):
                self._nondifferentiable.append((end, entry))
            if end > self._ends[-1]:
                self._ends.append(end)
                self._entries.append(entry)

    def with_derivatives(self, bad_nodes: Iterable[BadNode], seqs: Callable[[int], int]) -> tuple[BadNode, ...]:
        """Add to each of `bad_nodes` the forward op that it derives. `seqs` gives their sequence numbers."""
        return tuple(replace(bad, of=self.derivative(seqs(bad.node))) for bad in bad_nodes)

    def derivative(self, seq: int) -> Derivative | None:
        """Return the forward op whose derivative the node `seq` is; ``None`` if no backward made the node."""
        return self._derivative_of(self._entry_of(seq) if self._ends else None)

    def nondifferentiable_maker(self, users: Iterable[int]) -> Derivative | None:
        """Return the custom function whose backward is not differentiable and made the inputs of the nodes `users`.

        Torch gives the placeholder node of such a result no sequence number.
        """
        first = min(users, default=0)
        return self._derivative_of(
            next((entry for end, entry in reversed(self._nondifferentiable) if end <= first), None)
        )

    def _derivative_of(self, entry: Entry | None) -> Derivative | None:
        """Return the op of a log entry as a record; ``None`` for ``None``."""
        if entry is None:
            return None
        site, op = line_and_op(entry, self._names.frames)
        return Derivative(op, site, self._names.modules.place_of(entry[3]))

    def _entry_of(self, seq: int) -> Entry | None:
        """Return the forward op whose derivative node `seq` is, as logged here; ``None`` if no backward made the
        node.
        """
        at = bisect_right(self._ends, seq)
        return self._entries[at] if at < len(self._ends) else None

    def _forward_entry(self, seq: int) -> Entry | None:
        """Return the entry of the forward op that made node `seq`; ``None`` if it is not known."""
        _, entries = self._log.slice(seq, seq)
        return entries[0] if entries else None
