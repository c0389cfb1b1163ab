"""One op by itself: how far what it gave is from what float64 gives for just what it was given.

Note [What a dtype explains]: each thing that an op takes may be off by a step of the type that it gives, and so may
each partial sum on the way. The first is seen by moving what it takes by such steps: where terms cancel, that is much,
and not to be blamed. The second grows with the number of terms: n steps at worst, their root where errors do not add
up, which is what sums of floats are seen to do. Matrix products have their number of terms from torch's count of
operations; ops that work element by element have one; others as many as go into one of what they give.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from .prints import sketch
from ..records import Print, Tape, TapeOp
from .ops import Opaque, call, called_with, function

#: Steps of matrix products of float32, by the precision that the run has asked for.
_PRECISION = {"high": 2.0**-10, "medium": 2.0**-7}
#: What is given is moved so often where the result has few values: one of a few may be moved by nothing.
DRAWS, FEW = 8, 64
Recorded = Callable[[Tape, int | None], torch.Tensor | None]


def step_of(tape: Tape, value: int | None) -> float:
    """The relative step of the dtype of a value; 0 of what is no float."""
    if value is None:
        return 0.0
    dtype = getattr(torch, tape.prints[value].dtype, torch.float32)
    return float(torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0


def apart(exact: torch.Tensor, seen: Print) -> float:
    """How far a tensor is from a finite one of which there is the fingerprint."""
    return float((sketch(exact.reshape(-1)) - torch.tensor(seen.sketch or [0.0], dtype=torch.float64)).norm())


class Alone:
    """Calls ops of a run by themselves. `recorded` gives values as the run had them, widened."""

    def __init__(self, recorded: Recorded, draw: torch.Generator) -> None:
        self._recorded, self._draw = recorded, draw

    def off(self, tape: Tape, op: TapeOp, k: int) -> float | None:
        """How far output `k` is off, in units of what its type explains: Note [What a dtype explains]. ``inf`` where it
        has overflown, ``nan`` where `op` cannot be called again; ``None`` where what it was given was not kept, or it
        is random."""
        value = op.outputs[k]
        step = step_of(tape, value)
        given = [self._recorded(tape, taken.value) for taken in op.inputs]
        if op.random or value is None or not step:
            return None
        if any(one is None for one in given):
            return None if _callable(op.name) else nan
        tensors = [one for one in given if one is not None]
        seen = tape.prints[value]
        try:
            terms = _terms(tape, op, tensors)
            step = max(step, _asked(tape, op)) if seen.dtype == "float32" else step
            draws = DRAWS if _size(seen.shape) < FEW else 1
            others = [
                call(op, op.arguments, [self._moved(one, step) for one in tensors], seen.dtype)[k] for _ in range(draws)
            ]
            exact = call(op, op.arguments, tensors, seen.dtype)[k]  # last: it may write to what it is given
        except (Opaque, IndexError):
            return nan
        if tuple(exact.shape) != seen.shape or not bool(torch.isfinite(exact).all()):
            return None
        if seen.norm is None:
            return float("inf")
        wrong = apart(exact, seen)
        noise = sum(float((exact - other).square().sum()) for other in others) / draws
        explained = terms**0.5 * (noise**0.5 + step * float(torch.linalg.vector_norm(exact)))
        return wrong / explained if explained else float(wrong > 0)

    def _moved(self, tensor: torch.Tensor, step: float) -> torch.Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor.clone()
        return tensor * (1 + step * torch.randn(tensor.shape, generator=self._draw, dtype=torch.float64))


def _callable(name: str) -> bool:
    try:
        function(name)
    except Opaque:
        return False
    return "::" not in name


def _terms(tape: Tape, op: TapeOp, tensors: list[torch.Tensor]) -> float:
    """How many terms are summed for one of what `op` gives."""
    func, args, kwargs = called_with(op, op.arguments, tensors, None)
    sizes = [_size(tape.prints[v].shape) for v in op.outputs if v is not None]
    most = max((one.numel() for one in tensors), default=1)
    if torch.Tag.pointwise in func.tags or not tensors:
        return 1.0
    count = flop_registry.get(func.overloadpacket)
    if count is not None and len(op.outputs) == len(func._schema.returns):
        made = [torch.empty(tape.prints[v].shape, device="meta") for v in op.outputs if v is not None]
        operations = float(count(*args, **kwargs, out_val=made[0] if len(made) == 1 else tuple(made)))
        return min(max(operations / 2 / max(min(sizes), 1), 1.0), max(most, 1))
    whole = [one.numel() for one in tensors if not one.dtype.is_floating_point]
    return float(max([most / max(min(sizes), 1), *whole, *(n for one in tensors for n in one.shape), 1]))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _asked(tape: Tape, op: TapeOp) -> float:
    """The step that the run has asked products of float32 to have."""
    if not _multiplies(op):
        return 0.0
    flags: dict[str, Any] = tape.about.get("flags", {})
    if "convolution" in op.name and "gpu" in tape.about.get("machine", {}) and flags.get("cudnn.allow_tf32"):
        return _PRECISION["high"]
    return _PRECISION.get(flags.get("float32 matmul precision", ""), 0.0)


def _multiplies(op: TapeOp) -> bool:
    return getattr(torch.ops.aten, op.name.partition(".")[0], None) in flop_registry
