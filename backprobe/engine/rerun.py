"""One node once more, outside the engine.

What the engine does with what a node gives is done here too: it is summed to the shape that the next node takes, and
cast to its dtype. Hooks do not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import BackprobeError
from .called import NodeInfo


@dataclass(frozen=True)
class Rerun:
    """What a node gave when it was run by itself.

    :ivar grad_inputs: its outgoing gradients.
    :ivar equal: for each, whether it is bitwise what the engine got; ``None`` where there is nothing to compare.
    """

    grad_inputs: tuple[torch.Tensor | None, ...]
    equal: tuple[bool, ...] | None

    @property
    def same(self) -> bool | None:
        return None if self.equal is None else all(self.equal)


def fitted(node: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
    """Outgoing gradients as the engine passes them on (``validate_outputs`` in torch's ``engine.cpp``)."""
    out = []
    for grad, (following, number) in zip(grads, node.next_functions, strict=False):
        if following is None or grad is None:
            out.append(grad)
            continue
        like = following._input_metadata[number]
        if grad.is_complex() and not like.dtype.is_complex:
            grad = grad.real
        if grad.layout is torch.strided and grad.shape != like.shape:
            grad = grad.sum_to_size(like.shape)
        out.append(grad.to(like.dtype))
    return tuple(out)


def rerun(node: Any, info: NodeInfo, grads: Sequence[Any], engine: Sequence[Any] | None) -> Rerun:
    """Call `node` with `grads`.

    :param engine: what the engine got from the node; ``None``: it has not run it, or not from these.
    :raises BackprobeError: the node cannot be run again, or takes another number of gradients.
    """
    if info.seq is None:
        raise BackprobeError(f"{info.label} cannot be run again: it would add to .grad a second time")
    metadata = node._input_metadata
    if len(grads) != len(metadata):
        raise BackprobeError(
            f"{info.label} takes {len(metadata)} gradients, one for each output; {len(grads)} were given"
        )
    devices = sorted({g.device.index for g in grads if g is not None and g.is_cuda})
    # A custom function may draw random numbers: the run must not notice.
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            # The engine does that unless set_materialize_grads(False) was called, which cannot be read back.
            grads = [
                g if g is not None else torch.zeros(m.shape, dtype=m.dtype, device=m.device)
                for g, m in zip(grads, metadata, strict=True)
            ]
            result = node.apply(*grads)
        else:
            result = node(*grads)
        out = fitted(node, result if isinstance(result, (tuple, list)) else (result,))
    if engine is None:
        return Rerun(out, None)
    return Rerun(out, tuple(bitwise(a, b) for a, b in zip(out, engine, strict=True)))


def bitwise(a: Any, b: Any) -> bool:
    """Whether two gradients agree bit for bit; a NaN is equal to a NaN of the same bits."""
    if a is None or b is None:
        return a is None and b is None
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not b.layout:
        return False
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    same = a.detach().contiguous().view(-1), b.detach().contiguous().view(-1)
    return bool(torch.equal(*(t.view(torch.uint8) if t.numel() else t for t in same)))
