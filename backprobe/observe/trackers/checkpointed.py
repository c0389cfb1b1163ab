"""``--check checkpoints`` compares the gradients of each checkpointed region with those of the plain region.

The function and the arguments of a region are stored when it runs in the forward. After the script has ended, the
region runs again on fresh leaves, plain and with the checkpoint, from the same random state and with one random
cotangent. The random state, ``.grad``, buffers and training modes are restored; other side effects of the function are
not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...records import RegionGradient, Unseen
from ...source.frames import CodeLocation, variables
from ...source.roots import ModuleCallRef
from ...torch_internals import code_objects
from ...torch_internals.measure import is_float
from ...torch_internals.walk import Plans, walk
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of regions that are compared per line, and of lines.
MAX_REGIONS_PER_LINE, MAX_LINES = 8, 50
#: Relative difference above which two gradients are reported as different.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}


@dataclass
class _Sample:
    """A stored checkpointed region: its function, arguments and settings."""

    function: Callable[..., Any]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    reentrant: bool
    preserve: bool
    where: ModuleCallRef | None
    training: tuple[tuple[nn.Module, bool], ...]


class CheckpointComparison(Tracker):
    """Tracker that stores checkpointed regions, and compares them after the script has ended."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether the check was requested by ``--check checkpoints``."""
        return "checkpoints" in settings.checks

    def __init__(self, context: TrackerContext) -> None:
        """Start without regions."""
        self._names, self._modules, self._frames = context.names, context.modules, context.frames
        self._samples: dict[CodeLocation | None, list[_Sample]] = {}
        self._skipped: list[str] = []
        self._found: list[RegionGradient] = []

    def region_begins(self, spot: CodeLocation | None, frame: FrameType | None, where: ModuleCallRef | None) -> None:
        """Store a checkpointed region that runs for the first time: its function, copies of its arguments, and modes of
        modules.
        """
        if len(self._samples) >= MAX_LINES and spot not in self._samples:
            return
        samples = self._samples.setdefault(spot, [])
        if len(samples) >= MAX_REGIONS_PER_LINE:
            return
        while frame is not None and frame.f_code is not code_objects.CHECKPOINT:
            frame = frame.f_back
        if frame is None:
            return
        given = code_objects.checkpoint_arguments(variables(frame))
        if given is None:
            return
        function, args, kwargs, reentrant, preserve = given
        if any(s.function == function for s in samples):
            return
        training = tuple((m, m.training) for m in self._known_modules())
        with torch.no_grad():
            values, spec = tree_flatten((tuple(args), dict(kwargs)))
            kept = [v.detach().clone().requires_grad_(v.requires_grad) if _tensor(v) else v for v in values]
        args, kwargs = tree_unflatten(kept, spec)
        samples.append(_Sample(function, args, kwargs, reentrant, preserve, where, training))

    def _known_modules(self) -> list[nn.Module]:
        """Return the modules of all outermost modules that are alive."""
        return [module for _, model in self._modules.models() for module in model.modules()]

    def ended(self) -> None:
        """At the end of the run: compute gradients of the stored regions with and without checkpoint; record where they
        differ.
        """
        for spot, samples in self._samples.items():
            for sample in samples:
                try:
                    with self._as_in_script(sample), torch.enable_grad():
                        result = self._compare(sample)
                except Exception as error:  # it cannot be run again outside the script
                    self._skipped.append(f"{_name(sample.function)}: {type(error).__name__}: {error}"[:300])
                    break
                if result is not None:
                    names, size, lost = result
                    module = self._modules.place_of(sample.where)
                    self._found.append(RegionGradient(self._frames.site(spot), module, tuple(names), size, lost))
                    break

    def records(self) -> tuple[RegionGradient, ...]:
        """Return a record for each line whose checkpoint changes gradients."""
        return tuple(self._found)

    def unseen(self) -> list[Unseen]:
        """Return the regions that could not be compared, and why."""
        return [Unseen("checkpointed region", 1, f"not compared: {reason}") for reason in self._skipped]

    @contextmanager
    def _as_in_script(self, sample: _Sample) -> Iterator[None]:
        """Put modules in the modes that they had in the call; afterwards restore modes, buffers and random state."""
        now = [(m, m.training) for m, _ in sample.training]
        buffers = [(b, b.detach().clone()) for m in self._known_modules() for b in m._buffers.values() if b is not None]
        for module, mode in sample.training:
            module.training = mode
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            for module, mode in now:
                module.training = mode
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)

    def _compare(self, sample: _Sample) -> tuple[list[str], float, bool] | None:
        """Compare the gradients of a region with and without the checkpoint.

        :returns: the names of the tensors whose gradients differ, the largest relative difference, and whether one is
            missing; ``None`` if they agree, or if two plain calls differ.
        """
        plain, leaves, v = _gradients(sample, False, None, None)
        again, _, _ = _gradients(sample, False, leaves, v)
        if any(_relative_difference(a, b) for a, b in zip(plain, again, strict=True)):
            self._skipped.append(f"{_name(sample.function)}: no two calls give the same gradients")
            return None
        with_it, _, _ = _gradients(sample, True, leaves, v)
        names, worst, lost = [], 0.0, False
        for i, (leaf, a, b) in enumerate(zip(leaves, plain, with_it, strict=True)):
            far = _relative_difference(a, b)
            if far:
                names.append(self._names.of(leaf) if isinstance(leaf, nn.Parameter) else f"input {i}")
                worst, lost = max(worst, far), lost or b is None
        return (names, worst, lost) if names else None


def _tensor(value: object) -> bool:
    """Return whether `value` is a tensor and no parameter."""
    return isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)


def _name(function: object) -> str:
    """Return the name of a function, or of the class of another callable."""
    return getattr(function, "__name__", type(function).__name__)


def _gradients(
    sample: _Sample, checkpoint: bool, leaves: Any, v: Any
) -> tuple[list[Any], list[torch.Tensor | None], list[Any]]:
    """Return the gradients of a region, the tensors that they belong to, and the cotangents.

    These tensors are the inputs that require grad, then the parameters that the plain region reaches.

    :param checkpoint: run the region in a checkpoint.
    :param leaves: the tensors of the first run, ``None`` in that run.
    :param v: the cotangents of the first run, ``None`` in that run.
    """
    torch.manual_seed(0)
    values, spec = tree_flatten((sample.args, sample.kwargs))
    fresh = [x.detach().clone().requires_grad_(x.requires_grad) if _tensor(x) else x for x in values]
    inputs = [x for x in fresh if _tensor(x) and x.requires_grad]
    args, kwargs = tree_unflatten(fresh, spec)
    if checkpoint:
        more = {"use_reentrant": sample.reentrant, "preserve_rng_state": sample.preserve}
        out = torch.utils.checkpoint.checkpoint(sample.function, *args, **more, **kwargs)
    else:
        out = sample.function(*args, **kwargs)
    outs = [o for o in tree_flatten(out)[0] if isinstance(o, torch.Tensor) and o.requires_grad and is_float(o)]
    parameters = _parameters(outs) if leaves is None else [x for x in leaves if isinstance(x, nn.Parameter)]
    if v is None:
        generator = torch.Generator().manual_seed(1)
        v = [torch.randn(o.shape, generator=generator).to(o) for o in outs]
    wanted = [*inputs, *parameters]
    if not outs:
        return [None] * len(wanted), wanted, v
    v_now = v[: len(outs)]
    if not (checkpoint and sample.reentrant):
        return list(torch.autograd.grad(outs, wanted, v_now, allow_unused=True)), wanted, v
    if any(p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None) for p in parameters):
        raise RuntimeError("its parameters have hooks, and a reentrant checkpoint cannot be asked without calling them")
    kept = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    try:
        torch.autograd.backward(outs, v_now)
        return [x.grad for x in wanted], wanted, v
    finally:
        for p, grad in zip(parameters, kept, strict=True):
            p.grad = grad


def _parameters(outs: list[Any]) -> list[torch.Tensor]:
    """Return the parameters that the graphs of `outs` reach."""
    return [v for _, v in walk([o.grad_fn for o in outs], Plans()).leaves if isinstance(v, nn.Parameter)]


def _relative_difference(a: Any, b: Any) -> float:
    """Return the relative difference of two gradients, 0 if it is only rounding. ``None`` counts as zeros."""
    if a is None and b is None:
        return 0.0
    one = a if a is not None else b
    x, y = (torch.zeros_like(one) if g is None else g.detach() for g in (a, b))
    size = max(float(x.double().norm()), float(y.double().norm()))
    if not size or size != size:
        return 0.0
    far = float((x.double() - y.double()).norm()) / size
    return far if far > TOLERANCE.get(one.dtype, 2e-2) else 0.0
