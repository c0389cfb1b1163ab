"""What a graph's nodes have saved: who keeps the bytes (``--ask memory``), and what was written behind their back.

Read from the nodes themselves when a backward begins, without unpacking anything: what a saved-tensor hook has packed
(offloading, checkpoints), and what a custom function keeps on its ``ctx``, is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..records import ACCUMULATE_SEQ, SavedBytes
from . import private
from .raw import LiveLayout
from .writes import Write


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
