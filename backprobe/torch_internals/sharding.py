"""Maps the parameters of a model to the tensors that FSDP replaces them with.

Note [Parameters that are swapped]: ``fully_shard`` has two tensors for each parameter: the sharded one, which the
optimizer holds, and the unsharded one, which replaces it in the module from before a forward until after the backward,
and which the graph reaches. ``FullyShardedDataParallel`` has one flat parameter for each of its units, which the graph
reaches; with ``use_orig_params`` the module and the optimizer have the original ones, which are parts of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from .local import class_of


def has_several_ranks() -> bool:
    """Return whether the process is one of several ranks: a gradient may be a mean over them."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return bool(there and torch.distributed.get_world_size() > 1)


def swapped(root: nn.Module) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (sharded, unsharded) tensors of each ``fully_shard`` parameter in `root` that was gathered before.

    See Note [Parameters that are swapped].
    """
    kind = class_of("torch.distributed.fsdp", "FSDPModule")
    for module in root.modules() if kind is not None else ():
        if isinstance(module, kind):
            state = module._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None)
            for group in [state._fsdp_param_group] if groups is None else groups:
                for one in group.fsdp_params if group is not None else ():
                    whole = getattr(one, "_unsharded_param", None)
                    if whole is not None:
                        yield one.sharded_param, whole


def flattened(root: nn.Module) -> Iterator[tuple[torch.Tensor, nn.Module, list[torch.Tensor]]]:
    """Yield (flat parameter, its module, original parameters) of each FSDP unit in `root`.

    An optimizer may hold the original parameters instead of the flat one; there are none without ``use_orig_params``.
    """
    kind = class_of("torch.distributed.fsdp", "FullyShardedDataParallel")
    for module in root.modules() if kind is not None else ():
        if isinstance(module, kind):
            handle = getattr(module, "_handle", None)
            if handle is not None:
                flat = handle.flat_param
                yield flat, module, [*(flat._params or ()), *(flat._shared_params or ())]


def plain_class(kind: type) -> type:
    """Return the user's class if ``fully_shard`` replaced it with a subclass, otherwise `kind`."""
    own = class_of("torch.distributed.fsdp", "FSDPModule")
    if own is not None and kind.__bases__[:1] == (own,) and len(kind.__bases__) > 1:
        return kind.__bases__[1]
    return kind
