"""The ops of checkpointed regions, and the first difference between the two runs of a region."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...source.frames import CodeLocation
from ...source.roots import ModuleCallRef
from ...torch_internals import private
from ...torch_internals.measure import dtype_name, is_float
from ...torch_internals.norms import norm
from .torch_call_recorder import Op


@dataclass(frozen=True)
class RegionOp:
    """An op of a region: the user's location, the function, the module call, its inputs and its results."""

    spot: CodeLocation | None
    func: object
    where: ModuleCallRef | None
    #: (position or keyword, value) of the plain numbers, flags and strings among the arguments.
    plain: tuple[tuple[object, object], ...]
    #: (storage, version, whether it requires a gradient) of the parameters among its arguments.
    parameters: tuple[tuple[int, int, bool], ...]
    #: (shape, dtype, whether it requires a gradient) of each tensor.
    made: tuple[tuple[torch.Size, torch.dtype, bool], ...]
    #: Sum and norm of the first result, if values are compared.
    value: tuple[float, float] | None
    #: For an op that draws random numbers, a hash of the generators' states, if values are compared.
    drew: int | None = None

    def same_call(self, other: RegionOp) -> bool:
        """Return whether both are the same op of the region.

        The module call around the region is running only in the forward, so the modules are not compared if one op has
        none.
        """
        mine, its = self.where, other.where
        return (
            self.spot == other.spot
            and self.func == other.func
            and (mine is its or mine is None or its is None or mine.path == its.path)
        )


def difference(
    ops: list[RegionOp], recomputed: list[RegionOp], reentrant: bool, raised: bool
) -> tuple[str, RegionOp, str, str] | None:
    """Return the first difference of a region's recomputation: how it differs, the op, and the results of both runs.

    A recomputation stops once all saved tensors are recomputed, so `recomputed` may be shorter than `ops`.
    """
    for i, op in enumerate(recomputed):
        if i >= len(ops):
            return ("extra", op, "", _made(op)) if raised or reentrant else None
        was = ops[i]
        if not op.same_call(was):
            later = any(o.same_call(was) for o in recomputed[i:])
            before = any(o.same_call(op) for o in ops[i:])
            if later and not before:
                return "extra", op, "", _made(op)
            if before and not later:
                return "missing", was, _made(was), ""
            return "other", op, function_name(was), function_name(op)
        changed = next((b for a, b in zip(was.parameters, op.parameters, strict=False) if a != b), None)
        if changed is not None:
            before_it = was.parameters[op.parameters.index(changed)]
            if before_it[2] != changed[2]:
                return "frozen", op, *_flags(before_it[2], changed[2])
            if before_it[0] == changed[0]:
                return "written", op, f"version {before_it[1]}", f"version {changed[1]}"
        if was.plain != op.plain:
            pairs = zip(was.plain, op.plain, strict=False)
            one = next(((a, b) for a, b in pairs if a != b and not (a[1] != a[1] and b[1] != b[1])), None)
            if one is not None:
                return "arguments", op, _argument(one[0]), _argument(one[1])
        for (shape, dtype, grad), (shape_now, dtype_now, grad_now) in zip(was.made, op.made, strict=False):
            if shape != shape_now:
                return "shape", op, str(tuple(shape)), str(tuple(shape_now))
            if dtype is not dtype_now:
                return "dtype", op, dtype_name(dtype), dtype_name(dtype_now)
            if grad != grad_now and not reentrant:
                return "grad", op, *_flags(grad, grad_now)
        if was.value is not None and op.value is not None and not _close(was.value, op.value):
            return "values", op, f"norm {was.value[1]:.4g}", f"norm {op.value[1]:.4g}"
        if not op.made and was.drew is not None and op.drew is not None and was.drew != op.drew:
            return "values", op, "a mask", "another mask"
    if raised and len(recomputed) < len(ops) and recomputed:
        was = ops[len(recomputed)]
        return "missing", was, _made(was), ""
    return None


def _flags(was: bool, now: bool) -> tuple[str, str]:
    """Return in words whether a result required a gradient in the forward and in the recomputation."""
    words = ("requires none", "requires a gradient")
    return words[was], words[now]


def _argument(argument: tuple[object, object]) -> str:
    """Return a plain argument as text: its value, with the keyword if it has one."""
    key, value = argument
    text = f"{value:.6g}" if type(value) is float else repr(value)
    return f"{key}={text}" if isinstance(key, str) else text


def parameter_state(tensor: torch.Tensor) -> tuple[int, int, bool]:
    """Return the storage and the version of a parameter, and whether it requires a gradient."""
    try:
        return tensor.untyped_storage().data_ptr(), tensor._version, tensor.requires_grad
    except (RuntimeError, NotImplementedError):  # sparse, or not on this machine
        return 0, tensor._version, tensor.requires_grad


def sum_and_norm(tensor: torch.Tensor) -> tuple[float, float] | None:
    """Return the sum and the norm of a result; ``None`` if it has none that may be read."""
    if (
        type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or not is_float(tensor)
        or private.is_unsafe_to_read(tensor)
    ):
        return None
    if tensor.is_complex() or tensor.layout is not torch.strided or not tensor.numel() or private.is_freed(tensor):
        return None
    with torch.no_grad():
        detached = tensor.detach()
        return float(detached.sum(dtype=torch.float64)), norm(detached)


def random_state_hash(op: Op) -> int:
    """Return a hash of the states of the generators that an op on its arguments may use."""
    arguments = (*op.args, *op.kwargs.values())
    cpu, others = private.random_state(tuple(a for a in arguments if isinstance(a, torch.Tensor)))
    return hash((cpu.numpy().tobytes(), *(state.numpy().tobytes() for _, state in others)))


def _close(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Return whether two runs agree up to rounding: an accelerator may add in another order."""
    (sum_a, norm_a), (sum_b, norm_b) = a, b
    if norm_a - norm_a != 0.0 or norm_b - norm_b != 0.0:
        return True
    size = max(norm_a, norm_b)
    return abs(norm_a - norm_b) <= 1e-3 * size and abs(sum_a - sum_b) <= 1e-2 * size


def _made(op: RegionOp) -> str:
    """Return the dtypes and shapes of an op's results as text."""
    return " and ".join(f"{dtype_name(d)}{list(s)}" for s, d, _ in op.made)


def function_name(op: Op | RegionOp) -> str:
    """Return the name of the function of `op`."""
    return getattr(op.func, "__name__", str(op.func))
