"""Access to the values of a tensor that this process holds and may read.

Note [No own collectives]: an op on a ``DTensor`` may communicate with other ranks: its norm is summed over them, and
so is ``item()``. The other ranks do not measure at the same time, so they would hang, or take our call for one of the
script's. So only the local tensor is ever measured, and the norm of the whole is derived later, from the placements,
over the records of all ranks.

Note [Freed memory]: FSDP frees the memory of its parameters between their uses
(``untyped_storage().resize_(0)``), and any code may do so. The tensor object stays and keeps its shape; reading it
crashes the process. So every tensor that is read later than it was made goes through ``local``, here, or through
``is_freed``.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from .modes import is_symbolic, is_unsafe_to_read

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def is_freed(tensor: torch.Tensor) -> bool:
    """Return whether the memory of a strided tensor was freed, or is smaller than it needs."""
    try:
        have = tensor.untyped_storage().nbytes()
        if not have:
            return bool(tensor.numel()) and not tensor.is_meta
        count, size = tensor.numel(), tensor.element_size()
        if tensor.is_contiguous():
            return bool(have < (tensor.storage_offset() + count) * size) and count > 0
        last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        return bool(count) and have < (last + 1) * size
    except (RuntimeError, NotImplementedError):  # another layout, nested, or of a transform: no storage
        return False  # or no sizes


def local(tensor: torch.Tensor) -> Any:
    """Return the tensor from which to read this process's values of `tensor`; ``None`` if it cannot be read.

    That is the case if the memory was freed, or if the tensor has no values (``is_symbolic``).

    See Note [No own collectives]. A tensor of another subclass is returned unchanged.
    """
    if type(tensor) in _PLAIN:
        return None if is_freed(tensor) else tensor
    if is_symbolic(tensor):
        return None
    if is_distributed(tensor):
        return local(_done(tensor._local_tensor))
    return _done(tensor)


def is_distributed(tensor: object) -> bool:
    """Return whether `tensor` is a ``DTensor``: this process has a shard or a copy of it."""
    kind = class_of("torch.distributed.tensor", "DTensor")
    return kind is not None and isinstance(tensor, kind)


def is_readable(tensor: Any) -> bool:
    """Return whether `tensor` is plain and strided, and its values can be read here without disturbing the script.

    The read is hidden from dispatch modes (``hide_from_dispatch_modes``).
    """
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and not is_freed(tensor)
        and not is_unsafe_to_read(tensor, ignores_our_modes=True)
    )


def is_partial(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is a ``DTensor`` whose ranks hold summands: its norm does not follow from theirs."""
    return is_distributed(tensor) and any(p.is_partial() for p in tensor.placements)


def placement_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]] | None:
    """Return (mesh sizes, placements, coordinates of this process) of a ``DTensor``.

    Placements are ``R``, ``S(0)`` or ``P``. ``None`` for any other tensor, and outside the mesh.
    """
    if not is_distributed(tensor):
        return None
    mesh = tensor.device_mesh
    here = mesh.get_coordinate()
    if here is None:
        return None
    return tuple(mesh.shape), tuple(map(_short, tensor.placements)), tuple(here)


def _short(placement: Any) -> str:
    """Return a placement as text: ``R``, ``S(0)`` or ``P``."""
    if placement.is_replicate():
        return "R"
    # A strided sharding counts as one of the same dimension.
    return f"S({placement.dim})" if placement.is_shard() or hasattr(placement, "dim") else "P"


def _done(tensor: object) -> Any:
    """Return `tensor`, or the result of the collective that it waits for."""
    kind = class_of("torch.distributed._functional_collectives", "AsyncCollectiveTensor")
    return tensor.trigger_wait() if kind is not None and isinstance(tensor, kind) else tensor


def class_of(module: str, name: str) -> Any:
    """Return a torch class if its module is loaded; otherwise ``None``, since no object can be an instance."""
    found = sys.modules.get(module)
    return getattr(found, name, None) if found is not None else None
