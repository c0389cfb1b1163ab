"""The rounding error of a single op: the difference between its result and the float64 result for the same inputs.

Note [What a dtype explains]: each input of an op may be off by a rounding step of the result's dtype, and so may each
partial sum. The first effect is measured by perturbing the inputs by such steps: if terms cancel, it is large, and not
the op's fault. The second grows with the number of terms: n steps at worst, and their square root if errors are
independent, as they are for sums of floats in practice. Matrix products have their number of terms from torch's count
of operations; elementwise ops have one; others as many as there are inputs for each output. Values below the smallest
normal number of a dtype may become zero, except in half precision, whose range is small.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from math import inf, nan
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from ..records import Print, Tape, TapeOp
from .fingerprints import sketch
from .ops import Opaque, call, called_with, function

#: Rounding steps of float32 matrix products, by the precision setting of the run.
_PRECISION = {"high": 2.0**-10, "medium": 2.0**-7}
#: Number of perturbations of the inputs if the result has fewer than `MIN_ELEMENTS` elements (else one): a single
#: perturbation may leave one of few elements unchanged.
PERTURBATIONS, MIN_ELEMENTS = 8, 64
Recorded = Callable[[Tape, int | None], torch.Tensor | None]


def step_of(tape: Tape, value: int | None) -> float:
    """Return the relative rounding step of the dtype of a value; 0 if it is not floating-point."""
    if value is None:
        return 0.0
    dtype = getattr(torch, tape.prints[value].dtype, torch.float32)
    return float(torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0


def apart(exact: torch.Tensor, seen: Print) -> float:
    """Return the distance of a tensor from a finite one that is known by its fingerprint."""
    found = sketch(exact.reshape(-1))
    if seen.sketch:
        found -= torch.frombuffer(array("d", seen.sketch), dtype=torch.float64)
    return float(torch.linalg.vector_norm(found))


class Alone:
    """Calls ops of a run one at a time. `recorded` returns recorded values in float64."""

    def __init__(self, recorded: Recorded, draw: torch.Generator) -> None:
        """Take the function that returns recorded values, and the generator of random numbers for small changes of
        inputs.
        """
        self._recorded, self._draw = recorded, draw

    def off(self, tape: Tape, op: TapeOp, k: int) -> float | None:
        """Return the error of output `k` relative to the error that its dtype explains: Note [What a dtype explains].

        ``inf`` if the output overflowed, ``nan`` if `op` cannot be called again; ``None`` if an input was not recorded,
        or `op` is random.
        """
        return self.look(tape, op, k)[0]

    def look(self, tape: Tape, op: TapeOp, k: int, whole: bool = False) -> tuple[float | None, float]:
        """Return the result of ``off``, and the relative effect of rounding the inputs.

        :param whole: measure that too where the steps of partial sums explain all, which gives an upper bound of 1.
        """
        value = op.outputs[k]
        step = step_of(tape, value)
        given = [self._recorded(tape, taken.value) for taken in op.inputs]
        if op.random or value is None or not step:
            return None, 0.0
        if any(one is None for one in given):
            return (None if _callable(op.name) else nan), 0.0
        tensors = [one for one in given if one is not None]
        seen = tape.prints[value]
        try:
            count = terms(tape, op, tensors)
            step = max(step, _asked(tape, op)) if seen.dtype == "float32" else step
            # It may write to what it is given.
            exact = call(op, op.arguments, [self.moved(one, 0.0) for one in tensors], seen.dtype)[k]
            fine = bool(torch.isfinite(exact).all())
            if seen.norm is None and tuple(exact.shape) == seen.shape and (fine or self._finite(tape, op)):
                return inf, 0.0
            if tuple(exact.shape) != seen.shape or not fine:
                return None, 0.0
            wrong, size = apart(exact, seen), float(torch.linalg.vector_norm(exact))
            floor = _least(seen) * math.prod(seen.shape) ** 0.5
            sums = count**0.5 * (step * size + (floor if seen.dtype != "float16" else 0.0))
            if wrong <= sums and not whole:
                return (wrong / sums if sums else 0.0), 0.0
            noise = self._noise(op, k, tensors, seen, exact, step)
        except (Opaque, IndexError):
            return nan, 0.0
        explained = count**0.5 * noise + sums
        lost = noise + (floor if seen.dtype == "float16" else 0.0)
        return (wrong / explained if explained else float(wrong > 0)), (lost / size if size else inf if lost else 0.0)

    def _noise(
        self, op: TapeOp, k: int, tensors: list[torch.Tensor], seen: Print, exact: torch.Tensor, step: float
    ) -> float:
        """Return the norm of the change of the result if the inputs change by a rounding step."""
        draws = PERTURBATIONS if math.prod(seen.shape) < MIN_ELEMENTS else 1
        total = 0.0
        for _ in range(draws):
            other = call(op, op.arguments, [self.moved(one, step) for one in tensors], seen.dtype)[k]
            total += float((exact - other).square().sum())
        return float((total / draws) ** 0.5)

    @staticmethod
    def _finite(tape: Tape, op: TapeOp) -> bool:
        """Return whether all inputs of an op are finite."""
        return not any(tape.prints[taken.value].bad for taken in op.inputs if taken.value is not None)

    def moved(self, tensor: torch.Tensor, step: float) -> torch.Tensor:
        """Return a copy of `tensor` whose floats are perturbed by a relative step of `step`, at random."""
        if not step or not tensor.dtype.is_floating_point:
            return tensor.clone()
        return tensor * (1 + step * torch.randn(tensor.shape, generator=self._draw, dtype=torch.float64))


def _least(seen: Print) -> float:
    """Return the bound below which a value of this dtype may become zero.

    For half precision, whose subnormals are kept, it is the smallest number; for float64 the smallest number with a
    square, since all errors are measured by squares in float64.
    """
    kind = torch.finfo(getattr(torch, seen.dtype))
    if seen.dtype == "float64":
        return float(kind.tiny**0.5)
    return float(kind.tiny * kind.eps if seen.dtype == "float16" else kind.tiny)


def _callable(name: str) -> bool:
    """Return whether an op of this name can be called again."""
    try:
        function(name)
    except Opaque:
        return False
    return "::" not in name


def terms(tape: Tape, op: TapeOp, tensors: list[torch.Tensor]) -> float:
    """Return the number of terms that are summed for one element of the result of `op`."""
    func, args, kwargs = called_with(op, op.arguments, tensors, None)
    sizes = [math.prod(tape.prints[v].shape) for v in op.outputs if v is not None]
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


def _asked(tape: Tape, op: TapeOp) -> float:
    """Return the rounding step that the run's precision settings (TF32) allow for `op`; 0.0 if they do not apply to
    it.
    """
    if not _multiplies(op):
        return 0.0
    flags: dict[str, Any] = tape.about.get("flags", {})
    if "convolution" in op.name and "gpu" in tape.about.get("machine", {}) and flags.get("cudnn.allow_tf32"):
        return _PRECISION["high"]
    return _PRECISION.get(flags.get("float32 matmul precision", ""), 0.0)


def _multiplies(op: TapeOp) -> bool:
    """Return whether an op is a matrix product or convolution, for which torch counts operations."""
    return getattr(torch.ops.aten, op.name.partition(".")[0], None) in flop_registry
