"""Measures the memory that was held when an allocation failed in a backward call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING

from ...basics.torch_texts import WANTED
from ...records import FailedAllocation
from ...saved_memory.holders import Holders
from ...saved_memory.reading import storages_of
from ...torch_internals import private, storage_ids
from ...torch_internals.walk import LiveGraph
from ..forward.naming import Naming
from .active_backward import ActiveBackward

if TYPE_CHECKING:
    import torch

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def failed_allocation(text: str, running: ActiveBackward, names: Naming, frame: FrameType) -> FailedAllocation:
    """Measure the memory that the graph of a call still holds, and that parameters and gradients hold.

    Only sizes are read, so nothing waits for a device, and nothing is allocated there. The nodes that ran have released
    what they had saved.

    :param text: torch's error.
    :param frame: called from the script's frames, whose variables hold tensors too.
    """
    models = [model for _, model in names.modules.models()]
    with private.disable_function_modes():
        saved = _saved(running.graph, Holders(frame, names.frames, models))
    parameters = {id(p): p for model in models for p in model.parameters()}.values()
    return FailedAllocation(
        wanted_bytes(text),
        saved,
        _bytes(parameters),
        _bytes(p.grad for p in parameters if p.grad is not None),
    )


def wanted_bytes(text: str) -> int | None:
    """Return the size of the allocation that an error of torch's reports."""
    match = WANTED.search(text)
    if match is None or match["unit"] not in _UNITS:
        return None
    return round(float(match["count"]) * _UNITS[match["unit"]])


def _saved(graph: LiveGraph, holders: Holders) -> tuple[tuple[int, int], ...]:
    """Return the bytes that saved tensors still hold, by node, the most first; tensors held by something else are left
    out.
    """
    storages, held = storages_of(graph, holders)
    found: Counter[int] = Counter()
    for key, storage in storages.found.items():
        if not held[key][0]:
            found[storage.first] += storage.storage.nbytes()
    return tuple(found.most_common())


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the storages of `tensors`, each once; those whose memory cannot be read count as nothing."""
    found: dict[int, int] = {}
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
            found[storage_ids.storage_key(storage)] = storage.nbytes()
        except (RuntimeError, NotImplementedError):
            continue
    return sum(found.values())
