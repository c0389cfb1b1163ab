"""The memory of tensors: what tells one storage from another, and who uses it."""

from __future__ import annotations

import torch


def storage_key(storage: torch.UntypedStorage) -> int:
    """What tells two storages apart as long as both are alive."""
    return int(storage._cdata)


def storage_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """What tells a tensor's storage from others while both live, and its bytes. ``None`` where it has none."""
    if tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return int(storage._cdata), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):
        return None


def storage_users(storage: torch.UntypedStorage) -> int:
    """Strong references to the memory: one for each tensor on it, and one for the Python object of the storage."""
    return int(torch._C._storage_Use_Count(storage._cdata))  # type: ignore[attr-defined]


def sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Indices and values of a sparse tensor (COO) as they are: it need not be coalesced."""
    return [tensor._indices(), tensor._values()]
