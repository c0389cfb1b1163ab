"""The values of a tensor that this process has, and may read.

Note [No collective of ours]: an op on a ``DTensor`` may call the other ranks: its norm is added up over them, and so
is ``item()``. They do not look when we do, and would hang, or take our call for one of the script's. So what is
measured is the local tensor, always, and what its norm says about the whole is worked out later, from the placements,
over the records of all ranks.

Note [Memory that was given back]: FSDP frees the memory of its parameters between their uses
(``untyped_storage().resize_(0)``), and anybody may. The tensor stays and has its shape; reading it ends the process. So
whatever is read at another time than it was made is asked for with ``local``, here, or for ``is_freed``.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from .modes import is_symbolic

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def is_freed(tensor: Any) -> bool:
    """Whether the memory of a strided tensor was given back, or is less than it needs."""
    try:
        have = tensor.untyped_storage().nbytes()
        if not have:
            return bool(tensor.numel()) and not tensor.is_meta
        count, size = tensor.numel(), tensor.element_size()
        if tensor.is_contiguous():
            return bool(have < (tensor.storage_offset() + count) * size) and count > 0
        last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        return bool(count) and have < (last + 1) * size
    except (RuntimeError, NotImplementedError):  # of another layout, nested, or one of a transform: it has none, or no
        return False  # sizes


def local(tensor: Any) -> Any:
    """The tensor to read for the values that this process has of `tensor`; ``None`` where their memory was given back,
    and for one that has no values (``is_symbolic``).

    See Note [No collective of ours]. A tensor of another subclass is what it is.
    """
    if type(tensor) in _PLAIN:
        return None if is_freed(tensor) else tensor
    if is_symbolic(tensor):
        return None
    if is_distributed(tensor):
        return local(_done(tensor._local_tensor))
    return _done(tensor)


def is_distributed(tensor: Any) -> bool:
    """Whether `tensor` is a ``DTensor``: this process has a part of it, or a copy."""
    kind = class_of("torch.distributed.tensor", "DTensor")
    return kind is not None and isinstance(tensor, kind)


def is_partial(tensor: Any) -> bool:
    """Whether `tensor` is a ``DTensor`` of which the ranks have summands: no norm is to be had of it from theirs."""
    return is_distributed(tensor) and any(p.is_partial() for p in tensor.placements)


def placement_of(tensor: Any) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]] | None:
    """Of a ``DTensor``: sizes of the mesh, how it is placed on each of its dimensions (``R``, ``S(0)``, ``P(sum)``),
    and the place of this process in the mesh. ``None`` for any other tensor, and outside the mesh."""
    if not is_distributed(tensor):
        return None
    mesh = tensor.device_mesh
    here = mesh.get_coordinate()
    if here is None:
        return None
    return tuple(mesh.shape), tuple(map(_short, tensor.placements)), tuple(here)


def _short(placement: Any) -> str:
    if placement.is_replicate():
        return "R"
    # A sharding that is strided is one by the same dimension.
    return f"S({placement.dim})" if placement.is_shard() or hasattr(placement, "dim") else "P"


def _done(tensor: Any) -> Any:
    """What a collective that goes on will have put there, when it has."""
    kind = class_of("torch.distributed._functional_collectives", "AsyncCollectiveTensor")
    return tensor.trigger_wait() if kind is not None and isinstance(tensor, kind) else tensor


def class_of(module: str, name: str) -> Any:
    """A class of torch's, where its module is loaded: else nothing is of it."""
    found = sys.modules.get(module)
    return getattr(found, name, None) if found is not None else None
