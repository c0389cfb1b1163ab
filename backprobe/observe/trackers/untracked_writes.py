"""Detects writes to saved tensors that autograd's version counters do not show.

The saved tensors are read from the nodes when a backward begins, without unpacking anything. Tensors that a
saved-tensor hook packed (offloading, checkpoints), and tensors that a custom function keeps on its ``ctx``, are not
read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import FrameType

import torch

from ...records import ACCUMULATE_SEQ, Node, SilentWrite, Site
from ...source.assignments import changes_of
from ...source.shared_memory import written_through
from ...torch_internals import private
from ..backward.active_backward import ActiveBackward
from ..forward.fingerprints import Fingerprints, arrays_over
from ..forward.torch_call_recorder import Op
from ..forward.writes import Write, kind_of, names_of_storage, variable_of
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of records.
MAX_RECORDS = 10
#: Maximum number of first times that a line exposes a tensor's memory for which a fingerprint is taken in any step.
#: Later, a fingerprint is taken at powers of two only.
MAX_ALWAYS_FINGERPRINTED = 3


class UntrackedWriteTracker(Tracker):
    """Tracker that compares the tensors that nodes saved with their state when they were saved.

    This is done only if untracked writes may have occurred.
    """

    def __init__(self, context: TrackerContext) -> None:
        """Start without fingerprints."""
        self._context, self._writes, self._names, self._frames = context, context.writes, context.names, context.frames
        self._prints = Fingerprints()
        self._found: list[SilentWrite] = []
        #: How many times each line exposed a tensor's memory.
        self._exposures: dict[object, int] = {}

    def op_inspected(self, op: Op) -> None:
        """Take fingerprints of the inputs of an op that made nodes, as it may have saved them."""
        if op.after != op.before:
            # A normalization updates its statistics without a version change, and its backward does not read them.
            kind = kind_of(op.func)
            own = kind[1] if type(kind) is tuple else ()
            self._prints.add_inputs([a for i, a in enumerate(op.args) if i not in own], op.before, op.after)

    def memory_read(self, func: object, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """Take a fingerprint of a tensor whose memory is exposed: code outside torch may write to it."""
        spot = self._frames.spot(frame)
        times = self._exposures[spot] = self._exposures.get(spot, 0) + 1
        if self._context.recorder.inspecting or times <= MAX_ALWAYS_FINGERPRINTED or not times & (times - 1):
            self._prints.add_exposed(tensor, private.next_sequence_nr(), spot)

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Compare the saved tensors of a graph with their fingerprints and with writes that version counters do not
        show.
        """
        if self._prints:
            self._record_outside_writes(running, frame)
        for i in running.graph.plan.normalising:
            self._record_statistics_writes(i, running)
        writes = self._writes.silent
        if writes and max(w.seq for w in writes) > running.graph.span[0] and len(self._found) < MAX_RECORDS:
            self._record_data_writes(running, writes, frame)

    def _record_statistics_writes(self, i: int, running: ActiveBackward) -> None:
        """Record running statistics that a later call in train mode changed.

        The backward of a normalization in eval mode reads them.
        """
        node, seq = running.graph.nodes[i], running.graph.seqs[i]
        if len(self._found) >= MAX_RECORDS or not private.uses_running_statistics(node):
            return
        for name, tensor in private.saved_tensors(node):
            where = _storage(tensor) if name in ("running_mean", "running_var") else None
            write = self._writes.statistics_after(where[0], seq) if where is not None else None
            if where is not None and write is not None:
                named = names_of_storage(where[0], self._names.modules)
                known = self._names.modules.full_name(*named) if isinstance(named, tuple) else f"its saved {name}"
                layout = running.live.layout(self._names)
                self._add_record(known, write.op, self._frames.site(write.spot), layout.nodes[i], running)
                return

    def _record_data_writes(self, running: ActiveBackward, writes: deque[Write], frame: FrameType) -> None:
        """Record which saved tensors of a call's graph were written to through ``.data``, which torch does not notice.
        :param writes: the writes since the last call; emptied.
        """
        layout = running.live.layout(self._names)
        for i, name, write in untracked_writes(running.graph.nodes, running.graph.seqs, writes):
            named = names_of_storage(write.storage, self._names.modules)
            tensor = (
                self._names.modules.full_name(*named)
                if isinstance(named, tuple)
                else variable_of(write.storage, frame, self._frames) or f"its saved {name}"
            )
            self._add_record(tensor, write.op, self._frames.site(write.spot), layout.nodes[i], running)
        writes.clear()

    def _record_outside_writes(self, running: ActiveBackward, frame: FrameType) -> None:
        """Record saved tensors whose memory was written to from outside torch."""
        prints, graph = self._prints, running.graph
        with private.disable_function_modes():
            for i, seq in enumerate(graph.seqs):
                for name, tensor in private.saved_tensors(graph.nodes[i]) if seq != ACCUMULATE_SEQ else ():
                    found = prints.find_changed(tensor, seq) if tensor.layout is torch.strided else None
                    if found is None or len(self._found) >= MAX_RECORDS:
                        continue
                    arrays = arrays_over(tensor.untyped_storage(), frame, self._frames)
                    changes = (changes_of(self._frames, name, code=code) for name, code in arrays.items())
                    site = next((change for change in changes if change is not None), None)
                    given = self._frames.site(found.given)
                    if site is None and given is not None:
                        site = written_through(given, self._frames)
                    called = variable_of(tensor.untyped_storage().data_ptr(), frame, self._frames)
                    node = running.live.layout(self._names).nodes[i]
                    self._add_record(called or f"its saved {name}", "", site or given, node, running)
        prints.clear()

    def records(self) -> tuple[SilentWrite, ...]:
        """Return the records of saved tensors that were changed."""
        return tuple(self._found)

    def _add_record(self, tensor: str, op: str, written: Site | None, node: Node, running: ActiveBackward) -> None:
        """Add a record of a write to `tensor`, which `node` had saved, unless there is one for the same line.

        :param op: what wrote; `written`: the line that did.
        """
        seen = SilentWrite(
            tensor,
            op,
            written,
            node.op or node.name,
            node.site,
            self._frames.site(running.spot),
            node.module,
            node.name,
            running.step,
        )
        if not any(s.site == seen.site for s in self._found):
            self._found.append(seen)


def _storage(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the address and the number of bytes of a tensor's storage; ``None`` if it has none."""
    if tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return None


def untracked_writes(
    nodes: list[torch.autograd.graph.Node], seqs: list[int], writes: Iterable[Write]
) -> list[tuple[int, str, Write]]:
    """Return the last write through ``.data`` after the save for each saved tensor that has one.

    :returns: (node, name of the saved tensor, write) for each.
    """
    by_storage: dict[int, Write] = {}
    for write in writes:
        by_storage[write.storage] = write
    found = []
    for i, node in enumerate(nodes):
        if seqs[i] == ACCUMULATE_SEQ:
            continue
        for name, tensor in private.saved_tensors(node):
            where = _storage(tensor)
            last = by_storage.get(where[0]) if where is not None else None
            if last is not None and last.seq > seqs[i]:
                found.append((i, name, last))
    return found
