"""What a graph's nodes have saved: who keeps the bytes (``--ask memory``), and what was written behind their back.

Read from the nodes themselves when a backward begins, without unpacking anything: what a saved-tensor hook has packed
(offloading, checkpoints), and what a custom function keeps on its ``ctx``, is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..records import ACCUMULATE_SEQ, Node, SavedBytes, SilentWrite, Site
from . import private
from .calls import Running
from .defined import changed_after, changes_of
from .eye import Eye
from .fingerprints import arrays_over
from .layouts import LiveLayout
from .naming import Naming
from .writes import Write, names_of_storage, variable_of

#: Writes behind autograd's back that are noted at most.
SILENT = 10


class Ledger:
    """Looks at what the nodes of a graph have saved, where it was asked for or somebody wrote behind autograd's back.

    :param count: how many graphs to count the bytes of.
    """

    def __init__(self, eye: Eye, names: Naming, count: int) -> None:
        self._eye, self._names, self._frames = eye, names, names.frames
        self._count = count
        #: Of the graph that keeps most.
        self.bytes: tuple[SavedBytes, ...] = ()
        self.silent: list[SilentWrite] = []

    def look(self, running: Running, frame: Any) -> None:
        """The graph of a call that `frame` made is known."""
        graph, live = running.graph, running.live
        if self._count:
            self._count -= 1
            rows = saved_bytes(graph.nodes, graph.seqs, live, live.layout(self._names))
            if sum(r.bytes for r in rows) > sum(r.bytes for r in self.bytes):
                self.bytes = rows
        if self._eye.prints:
            self._from_outside(running, frame)
        writes = self._eye.writes.silent
        if writes and max(w.seq for w in writes) > graph.span[0] and len(self.silent) < SILENT:
            self._through_data(running, writes, frame)

    def _through_data(self, running: Running, writes: Any, frame: Any) -> None:
        """Saved tensors that were written through ``.data``."""
        layout = running.live.layout(self._names)
        for i, name, write in silent_writes(running.graph.nodes, running.graph.seqs, writes):
            named = names_of_storage(write.storage, self._names.modules)
            tensor = (
                self._names.modules.full_name(*named)
                if isinstance(named, tuple)
                else variable_of(write.storage, frame, self._frames) or f"its saved {name}"
            )
            self._add(tensor, write.op, self._frames.site(write.spot), layout.nodes[i], running)
        writes.clear()

    def _from_outside(self, running: Running, frame: Any) -> None:
        """Saved tensors whose memory was written from outside torch."""
        prints, graph = self._eye.prints, running.graph
        with private.unseen():
            for i, seq in enumerate(graph.seqs):
                for name, tensor in private.saved_tensors(graph.nodes[i]) if seq != ACCUMULATE_SEQ else ():
                    found = prints.changed(tensor, seq) if tensor.layout is torch.strided else None
                    if found is None or len(self.silent) >= SILENT:
                        continue
                    arrays = arrays_over(tensor.untyped_storage(), frame, self._frames)
                    site = next((s for a in arrays if (s := changes_of(self._frames, a)) is not None), None)
                    given = self._frames.site(found.given)
                    if site is None and given is not None:
                        site = changed_after(given)
                    called = variable_of(tensor.untyped_storage().data_ptr(), frame, self._frames)
                    node = running.live.layout(self._names).nodes[i]
                    self._add(called or f"its saved {name}", "", site or given, node, running)
        prints.clear()

    def _add(self, tensor: str, op: str, written: Site | None, node: Node, running: Running) -> None:
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
        if not any(s.site == seen.site for s in self.silent):
            self.silent.append(seen)


def _storage(tensor: Any) -> tuple[int, int] | None:
    """Address and bytes of a tensor's storage."""
    if tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return None


def saved_bytes(nodes: list[Any], seqs: list[int], live: LiveLayout, layout: Any) -> tuple[SavedBytes, ...]:
    """Bytes kept for backward by line and op, most first. Each storage counts once, for the node that saved it first;
    parameters and buffers of the leaves are not counted."""
    seen: set[int] = set()
    for i in live.plan.leaves:
        found = _storage(nodes[i].variable)
        if found is not None:
            seen.add(found[0])
    rows: dict[Any, list[Any]] = {}
    for i in sorted(range(len(nodes)), key=seqs.__getitem__):
        if seqs[i] == ACCUMULATE_SEQ:
            continue
        node = layout.nodes[i]
        for name, tensor in private.saved_tensors(nodes[i]):
            found = _storage(tensor)
            if found is None or found[0] in seen:
                continue
            seen.add(found[0])
            row = rows.setdefault((node.site, node.op or node.name, node.module), [0, 0, set()])
            row[0] += found[1]
            row[1] += 1
            row[2].add(name)
    made = [
        SavedBytes(site, op, module, count, tensors, tuple(sorted(names)))
        for (site, op, module), (count, tensors, names) in rows.items()
    ]
    return tuple(sorted(made, key=lambda r: -r.bytes))


def silent_writes(nodes: list[Any], seqs: list[int], writes: Iterable[Write]) -> list[tuple[int, str, Write]]:
    """(node, name of the saved tensor, write) for each saved tensor that was written through ``.data`` after the save,
    which its version does not show."""
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
