"""One node once more, outside the engine.

What the engine does around a node is not part of it: hooks, and fitting what a node gives to the shape and dtype of the
next. The engine's own result, as a hook after the node sees it, is before that fitting too, so the two compare.
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


def rerun(node: Any, info: NodeInfo, grads: Sequence[Any], engine: Sequence[Any] | None) -> Rerun:
    """Call `node` with `grads`.

    :param engine: what the engine got from the node; ``None``: it has not run it, or not from these.
    :raises BackprobeError: the node cannot be run again, or takes another number of gradients.
    """
    if hasattr(node, "variable"):
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
            if node.materialize_grads:  # type: ignore[attr-defined]
                grads = [
                    g if g is not None else torch.zeros(m.shape, dtype=m.dtype, device=m.device)
                    for g, m in zip(grads, metadata, strict=True)
                ]
            result = node.apply(*grads)
        else:
            result = node(*grads)
    out = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if engine is None:
        return Rerun(out, None)
    # A custom function may leave out trailing Nones.
    engine = (*engine, *[None] * (len(out) - len(engine)))
    out = (*out, *[None] * (len(engine) - len(out)))
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
