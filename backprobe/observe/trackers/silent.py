"""What was written behind autograd's back into tensors that nodes had saved.

Read from the nodes themselves when a backward begins, without unpacking anything: what a saved-tensor hook has packed
(offloading, checkpoints), and what a custom function keeps on its ``ctx``, is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...records import ACCUMULATE_SEQ, Node, SilentWrite, Site
from ...source.defined import changed_after, changes_of
from ...torchside import private
from ..backward.calls import Running
from ..forward.eye import Eye
from ..forward.fingerprints import arrays_over
from ..forward.naming import Naming
from ..forward.writes import Write, names_of_storage, variable_of

#: Writes behind autograd's back that are noted at most.
SILENT = 10


class SilentWrites:
    """Looks at what the nodes of a graph have saved, where somebody wrote behind autograd's back."""

    def __init__(self, eye: Eye, names: Naming) -> None:
        self._eye, self._names, self._frames = eye, names, names.frames
        self.found: list[SilentWrite] = []

    def look(self, running: Running, frame: Any) -> None:
        """The graph of a call that `frame` made is known."""
        if self._eye.prints:
            self._from_outside(running, frame)
        writes = self._eye.writes.silent
        if writes and max(w.seq for w in writes) > running.graph.span[0] and len(self.found) < SILENT:
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
                    if found is None or len(self.found) >= SILENT:
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
        if not any(s.site == seen.site for s in self.found):
            self.found.append(seen)


def _storage(tensor: Any) -> tuple[int, int] | None:
    """Address and bytes of a tensor's storage."""
    if tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return None


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
