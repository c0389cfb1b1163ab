"""Finds the tensors of a model that are replicated across ranks, and computes checksums of their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from .local import class_of, is_partial, local, placement_of

#: Maximum number of elements in total that are summed completely; above it, only the first elements of each tensor are
#: summed, at most so many.
MAX_SUMMED_ELEMENTS, MAX_ELEMENTS_EACH = 1 << 26, 1 << 16
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def in_ddp(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield (path, wrapper) of the modules below `root` that are wrapped in ``DistributedDataParallel``."""
    kind = nn.parallel.DistributedDataParallel
    for path, module in root.named_modules():
        if isinstance(module, kind):
            yield path, module


def own_parameters(wrapper: torch.nn.parallel.DistributedDataParallel) -> list[torch.Tensor]:
    """Return the parameters that a ``DistributedDataParallel`` may reduce, in its order."""
    ignored = wrapper.parameters_to_ignore
    return [one for name, one in wrapper.module.named_parameters() if name not in ignored]


def count_of_parameters(wrapper: torch.nn.parallel.DistributedDataParallel) -> int | None:
    """Return how many parameters a ``DistributedDataParallel`` reduces; ``None`` if this torch does not say."""
    try:
        return int(wrapper._get_ddp_logging_data()["num_parameter_tensors"])
    except (AttributeError, KeyError, RuntimeError):
        return None


def syncs(wrapper: object) -> bool:
    """Return whether DDP reduces the gradients of its last forward, as far as is known: not under ``no_sync``."""
    return getattr(wrapper, "require_forward_param_sync", True) is not False


def joins(wrapper: object) -> bool:
    """Return whether DDP handles uneven inputs (``join``): ranks that run out of data make fewer updates."""
    return bool(getattr(getattr(wrapper, "_join_config", None), "enable", False))


def version_of(tensor: torch.Tensor | None) -> int:
    """Return how often a tensor was written to in place; -1 if it has no version counter, or is ``None``."""
    try:
        return -1 if tensor is None else int(tensor._version)
    except RuntimeError:  # of inference mode
        return -1


def comm_hooks(wrapper: object) -> list[Callable[..., object]]:
    """Return the communication hooks that reduce gradients across ranks in place of DDP."""
    return [hook for hook, _ in getattr(wrapper, "_comm_hooks", ())]


def kept_buffers(wrapper: torch.nn.parallel.DistributedDataParallel) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers of a model in DDP that each rank keeps for itself, and that its forward may read.

    Excluded are buffers that DDP broadcasts before each forward, and running statistics, which a training forward only
    writes.
    """
    if wrapper.broadcast_buffers:
        return
    for path, module in wrapper.module.named_modules():
        if not hasattr(module, "running_mean"):
            for name, buffer in module.named_buffers(recurse=False):
                yield f"{path}.{name}".strip("."), buffer


def in_fsdp1(root: nn.Module) -> set[int]:
    """Return the ids of the parameters in ``FullyShardedDataParallel``: parts of flat parameters."""
    kind = class_of("torch.distributed.fsdp", "FullyShardedDataParallel")
    wrapped = [m for m in root.modules() if isinstance(m, kind)] if kind is not None else []
    return {id(p) for module in wrapped for p in module.parameters()}


def in_fsdp2(root: nn.Module) -> set[int]:
    """Return the ids of the ``fully_shard`` parameters that are sharded over ranks with different batches.

    They are sharded along one dimension of the mesh and replicated along the others. With tensor parallelism, some are
    sharded along two dimensions, and are left out.
    """
    kind = class_of("torch.distributed.fsdp", "FSDPModule")
    wrapped = [m for m in root.modules() if isinstance(m, kind)] if kind is not None else []
    found = set()
    for p in {p for module in wrapped for p in module.parameters()}:
        _, placements, place = place_of(p)
        if len([at for at in place if at >= 0]) == 1 and placements.count("R") == len(placements) - 1:
            found.add(id(p))
    return found


def place_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
    """Return (mesh sizes, placements, coordinates) of this process's part of `tensor`; empty for a plain tensor.

    The coordinate of a replicated dimension is -1.
    """
    found = placement_of(tensor)
    if found is None:
        return (), (), ()
    mesh, placements, here = found
    return mesh, placements, tuple(-1 if p == "R" else at for p, at in zip(placements, here, strict=True))


def bits_of(tensors: Sequence[torch.Tensor]) -> list[int | None]:
    """Return, for each tensor, a sum over the bits of its local part: equal tensors have equal sums.

    ``None`` for a tensor that cannot be read, or is a summand. Waits once for each device.
    """
    here = [None if t is None or is_partial(t) else local(t) for t in tensors]
    many = sum(t.numel() for t in here if t is not None) > MAX_SUMMED_ELEMENTS
    sums: list[tuple[int, torch.Tensor]] = []
    for at, one in enumerate(here):
        whole = _WHOLE.get(one.element_size()) if one is not None else None
        if one is None or whole is None or one.layout is not torch.strided or one.is_meta or one.is_complex():
            continue
        flat = one.detach().reshape(-1)
        sums.append((at, (flat[:MAX_ELEMENTS_EACH] if many else flat).view(whole).sum(dtype=torch.int64)))
    found: list[int | None] = [None] * len(tensors)
    devices: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    for at, value in sums:
        devices.setdefault(value.device, []).append((at, value))
    for group in devices.values():
        for (at, _), number in zip(group, torch.stack([value for _, value in group]).tolist(), strict=True):
            found[at] = number
    return found
