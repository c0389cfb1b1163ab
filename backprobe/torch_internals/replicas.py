"""Which tensors of a model are copies of one another over the ranks, and a number for the bits of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .local import class_of, is_partial, local, placement_of

#: Elements that are looked at of all tensors together, and where they have more, of each.
MOST, OF_EACH = 1 << 26, 1 << 16
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def in_ddp(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules below `root` that are in ``DistributedDataParallel``: the path of its outermost, and the wrapper."""
    kind = nn.parallel.DistributedDataParallel
    for path, module in root.named_modules():
        if isinstance(module, kind):
            yield path, module


def syncs(wrapper: Any) -> bool:
    """Whether DDP reduces what the backward of its last forward gives, as far as is known: not under ``no_sync``."""
    return getattr(wrapper, "require_forward_param_sync", True) is not False


def joins(wrapper: Any) -> bool:
    """Whether DDP stands in for ranks that have come to their end (``join``): they make fewer updates."""
    return bool(getattr(getattr(wrapper, "_join_config", None), "enable", False))


def version_of(tensor: Any) -> int:
    """How often a tensor was written to in place; -1 where nobody counts, and of none."""
    try:
        return -1 if tensor is None else int(tensor._version)
    except RuntimeError:  # of inference mode
        return -1


def comm_hooks(wrapper: Any) -> list[Any]:
    """The functions that make gradients what they are on all ranks, in place of DDP."""
    return [hook for hook, _ in getattr(wrapper, "_comm_hooks", ())]


def kept_buffers(wrapper: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Buffers of a model in DDP that each rank keeps for itself, and that its forward may read: not those that DDP
    sends before each forward, and no running statistics, which a forward in training only writes."""
    if wrapper.broadcast_buffers:
        return
    for path, module in wrapper.module.named_modules():
        if not hasattr(module, "running_mean"):
            for name, buffer in module.named_buffers(recurse=False):
                yield f"{path}.{name}".strip("."), buffer


def in_fsdp1(root: nn.Module) -> set[int]:
    """Ids of the parameters in ``FullyShardedDataParallel``: parts of flat ones."""
    kind = class_of("torch.distributed.fsdp", "FullyShardedDataParallel")
    wrapped = [m for m in root.modules() if isinstance(m, kind)] if kind is not None else []
    return {id(p) for module in wrapped for p in module.parameters()}


def in_fsdp2(root: nn.Module) -> set[int]:
    """Ids of the parameters that ``fully_shard`` has sharded over ranks which all have batches of their own: on one
    dimension of the mesh, and copies on the others. With tensor parallel some are sharded on two."""
    kind = class_of("torch.distributed.fsdp", "FSDPModule")
    wrapped = [m for m in root.modules() if isinstance(m, kind)] if kind is not None else []
    found = set()
    for p in {p for module in wrapped for p in module.parameters()}:
        _, placements, place = place_of(p)
        if len([at for at in place if at >= 0]) == 1 and placements.count("R") == len(placements) - 1:
            found.add(id(p))
    return found


def place_of(tensor: Any) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
    """Sizes of the mesh, placements, and where in the mesh the part of this process is, by the dimensions that are not
    replicated. Empty for a plain tensor."""
    found = placement_of(tensor)
    if found is None:
        return (), (), ()
    mesh, placements, here = found
    return mesh, placements, tuple(-1 if p == "R" else at for p, at in zip(placements, here, strict=True))


def bits_of(tensors: Sequence[Any]) -> list[int | None]:
    """For each tensor a sum over the bits of what this process has of it: equal where all are equal, and hardly where
    not. ``None`` for one that cannot be read, or is a summand. One wait for each device."""
    here = [None if t is None or is_partial(t) else local(t) for t in tensors]
    many = sum(t.numel() for t in here if t is not None) > MOST
    sums: list[tuple[int, Any]] = []
    for at, one in enumerate(here):
        whole = _WHOLE.get(one.element_size()) if one is not None else None
        if one is None or whole is None or one.layout is not torch.strided or one.is_meta or one.is_complex():
            continue
        flat = one.detach().reshape(-1)
        sums.append((at, (flat[:OF_EACH] if many else flat).view(whole).sum(dtype=torch.int64)))
    found: list[int | None] = [None] * len(tensors)
    devices: dict[Any, list[tuple[int, Any]]] = {}
    for at, value in sums:
        devices.setdefault(value.device, []).append((at, value))
    for group in devices.values():
        for (at, _), number in zip(group, torch.stack([value for _, value in group]).tolist(), strict=True):
            found[at] = number
    return found
