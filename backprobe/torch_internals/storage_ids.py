"""The storages of tensors: their identity, and the number of references to them."""

from __future__ import annotations

import torch


def storage_key(storage: torch.UntypedStorage) -> int:
    """Return a key that identifies a storage while it is alive."""
    return int(storage._cdata)


def storage_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return (key, bytes) of a tensor's storage; ``None`` if it has none.

    The key identifies the storage while it is alive.
    """
    if tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return int(storage._cdata), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):
        return None


def storage_users(storage: torch.UntypedStorage) -> int:
    """Return the number of strong references to a storage: one per tensor on it, and one for its Python object."""
    return int(torch._C._storage_Use_Count(storage._cdata))  # type: ignore[attr-defined]


def sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the indices and values of a sparse tensor (COO), which need not be coalesced."""
    return [tensor._indices(), tensor._values()]
