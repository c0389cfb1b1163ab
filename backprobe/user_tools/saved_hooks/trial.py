"""Trials of a policy or a checkpoint: run the step plain and with it, measure, and restore everything.

Note [Trials begin alike]: Every run begins with the same parameters, buffers, empty ``.grad`` and random state, so that
runs can be compared. All state is restored when the trial is over, also after an error.

Note [Memory of a trial]: Memory on a GPU is what torch's allocator reports. A CPU has no such count: there it is the
storages that torch's ops make, each from when it is returned until it is freed. Memory that an op uses only internally
is not included.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from ...basics.errors import BackprobeError
from ...basics.select import Choice, Selection, described
from ...basics.text import counted, mib
from ...torch_internals import storage_ids
from ...torch_internals.structure import tensors_in


@dataclass(frozen=True)
class StepCost:
    """The cost of running the step in one way. Bytes count what the step allocates beyond what was there before it."""

    #: Median of the rounds, forward and backward.
    seconds: float
    #: Bytes allocated when the forward is over: saved tensors, and results that the step holds on to. ``None`` if the
    #: step ran the backward itself.
    kept_bytes: int | None
    #: The most bytes that were allocated at one time.
    peak_bytes: int


@dataclass(frozen=True)
class Trial:
    """The savings and costs of a policy or a checkpoint."""

    name: str
    plain: StepCost
    tried: StepCost
    #: Relative error of each parameter's gradient, ``||g - g0|| / ||g0||``; 0.0 for the same bits.
    errors: dict[str, float]
    #: Relative error of all gradients as one vector. A gradient whose true value is zero (a bias before a batch norm)
    #: can have a large error in ``errors`` and hardly counts here.
    error: float
    #: Whether all gradients are the same, bit for bit; and whether two plain runs were.
    identical: bool
    repeatable: bool

    def __str__(self) -> str:
        """Return memory, time and errors of the gradients as text, before and after."""
        lines = [self.name]
        pairs = [("peak", self.plain.peak_bytes, self.tried.peak_bytes)]
        if self.plain.kept_bytes is not None and self.tried.kept_bytes is not None:
            pairs.insert(0, ("after the forward", self.plain.kept_bytes, self.tried.kept_bytes))
        for what, before, after in pairs:
            lines.append(f"  {what}: {mib(before)} MiB -> {mib(after)} MiB ({_change(before, after)})")
        a, b = self.plain.seconds, self.tried.seconds
        lines.append(f"  time: {a * 1e3:.3g} ms -> {b * 1e3:.3g} ms ({_change(a, b)})")
        if self.identical:
            lines.append("  gradients: the same, bit for bit")
        elif not self.repeatable:
            lines.append(f"  gradients: relative error {self.error:.2g}, but two plain runs differ too")
        else:
            worst = max(self.errors, key=lambda name: self.errors[name])
            lines.append(
                f"  gradients: relative error {self.error:.2g} over all, at most {self.errors[worst]:.2g} ({worst})"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _change(before: float, after: float) -> str:
    """Return a change in percent as text."""
    return f"{100 * (after - before) / before:+.0f}%" if before else "from nothing"


class Allocations(TorchDispatchMode):
    """Bytes of the storages that ops made and that are alive (Note [Memory of a trial])."""

    def __init__(self) -> None:
        """Begin at 0 bytes."""
        super().__init__()
        self.live, self.peak = 0, 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._finalizers: list[weakref.finalize] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the op, count the storages that it makes, and return its result."""
        kwargs = kwargs or {}
        for tensor in tensors_in((args, kwargs)):
            self._see(tensor, made=False)
        out = func(*args, **kwargs)
        for tensor in tensors_in(out):
            self._see(tensor, made=True)
        return out

    def _see(self, tensor: torch.Tensor, made: bool) -> None:
        """Remember the storage of a tensor, and count its bytes if an op has just `made` it."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage_ids.storage_key(storage)
        known = self._known.get(key)
        if known is not None and known() is storage:
            return
        self._known[key] = weakref.ref(storage)
        if made:
            size = storage.nbytes()
            self.live += size
            self.peak = max(self.peak, self.live)
            self._finalizers.append(weakref.finalize(storage, self._gone, size))
            if len(self._finalizers) > 10_000:
                self._finalizers = [f for f in self._finalizers if f.alive]

    def _gone(self, size: int) -> None:
        """Subtract the bytes of a storage that was freed."""
        self.live -= size

    def close(self) -> None:
        """Stop watching the storages."""
        for finalizer in self._finalizers:
            finalizer.detach()


class _State:
    """The state that a run may change: saved once, restored after each run (Note [Trials begin alike])."""

    def __init__(self, model: nn.Module) -> None:
        """Save parameters, buffers, ``.grad`` and the random state."""
        tensors = [*model.parameters(), *model.buffers()]
        self._values = [(t, t.detach().clone()) for t in tensors]
        self._parameters = list(model.parameters())
        self._grads = [p.grad for p in self._parameters]
        self._random = _random_state()

    def reset(self) -> None:
        """Restore the state for a run, with empty ``.grad``."""
        with torch.no_grad():
            for tensor, value in self._values:
                if not torch.equal(tensor, value):  # writing changes the version, so only if necessary
                    tensor.copy_(value)
        for parameter in self._parameters:
            parameter.grad = None
        _set_random_state(self._random)

    def restore(self) -> None:
        """Restore the state, with the original ``.grad``."""
        self.reset()
        for parameter, grad in zip(self._parameters, self._grads, strict=True):
            parameter.grad = grad


def _random_state() -> list[Any]:
    """Return the states of the random generators of torch, Python and, if it is loaded, NumPy."""
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return [torch.get_rng_state(), cuda, random.getstate(), numpy.random.get_state() if numpy is not None else None]


def _set_random_state(state: list[Any]) -> None:
    """Set the random generators to a state that ``_random_state`` returned."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])
    random.setstate(state[2])
    if state[3] is not None:
        sys.modules["numpy"].random.set_state(state[3])


@contextlib.contextmanager
def checkpointed(model: nn.Module, select: Selection) -> Iterator[list[str]]:
    """Run the chosen modules of a model under ``torch.utils.checkpoint`` inside this block; of nested modules, the
    outermost. Yields their paths.
    """
    wanted = Choice(select)
    found = [(path, m) for path, m in model.named_modules() if path and wanted(path, m)]
    wanted.check([path for path, _ in model.named_modules() if path], "module")
    inside: set[int] = set()
    chosen = []
    for path, module in found:
        if id(module) not in inside:
            chosen.append((path, module))
            inside.update(id(m) for m in module.modules())
    before: list[tuple[nn.Module, object]] = []
    try:
        for _, module in chosen:
            before.append((module, module.__dict__.get("forward", before)))
            # Set on the instance, where a call of the module finds it first; hooks of the module run as usual.
            module.forward = _checkpoint_of(module.forward)
        yield [path for path, _ in chosen]
    finally:
        for module, was in before:
            if was is before:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = was


def _checkpoint_of(forward: Callable[..., object]) -> Callable[..., object]:
    """Return a function that runs `forward` under a checkpoint."""

    def run(*args: object, **kwargs: object) -> object:
        """Run the forward, under a checkpoint if gradients are enabled."""
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


class _Runs:
    """Runs of one step."""

    def __init__(self, model: nn.Module, step: Callable[[], object]) -> None:
        """Take the model and its step, and save the state."""
        self._model, self._step = model, step
        self._device = next((p.device for p in model.parameters() if p.is_cuda), None)
        self._state = _State(model)

    def once(self, make: Callable[[], Any], marked: Callable[[], None] | None = None) -> float:
        """Restore the state, run the step inside the context manager of `make`, and return the seconds.
        :param marked: called between forward and backward.
        :raises BackprobeError: the step returns a tensor that is not a scalar.
        """
        self._state.reset()
        self._wait()
        begin = time.perf_counter()
        with make():
            loss = self._step()
            if isinstance(loss, torch.Tensor) and loss.requires_grad:
                if loss.numel() != 1:
                    raise BackprobeError(
                        f"step gave a tensor of shape {tuple(loss.shape)}; it gives the loss, a scalar, or runs the "
                        "backward itself and gives None"
                    )
                if marked is not None:
                    marked()
                loss.backward()
        del loss
        self._wait()
        return time.perf_counter() - begin

    def grads(self, make: Callable[[], object]) -> dict[str, torch.Tensor | None]:
        """Run the step, and return copies of the parameters' gradients by name."""
        self.once(make)
        return {n: None if p.grad is None else p.grad.detach().clone() for n, p in self._model.named_parameters()}

    def memory(self, make: Callable[[], object]) -> tuple[int | None, int]:
        """Return the bytes after the forward, and the most bytes at one time."""
        kept: list[int] = []
        if self._device is not None:
            before = torch.cuda.memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            self.once(make, lambda: kept.append(torch.cuda.memory_allocated(self._device) - before))
            return (kept[0] if kept else None), torch.cuda.max_memory_allocated(self._device) - before
        watch = Allocations()
        try:
            with watch:
                self.once(make, lambda: kept.append(watch.live))
        finally:
            watch.close()
        return (kept[0] if kept else None), watch.peak

    def _wait(self) -> None:
        """Wait until the GPU is idle, if the model is on one."""
        if self._device is not None:
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """Restore the original state."""
        self._state.restore()


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Return whether two gradients are equal, or both missing; a NaN equals a NaN."""
    if a is None or b is None:
        return a is b
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _error(a: torch.Tensor | None, b: torch.Tensor | None) -> float:
    """Return the relative error of ``b``; infinite if only one of the two exists."""
    if _same(a, b):
        return 0.0
    if a is None or b is None:
        return float("inf")
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    norm = float(a.norm())
    return float((a - b).norm()) / norm if norm else float("inf")


def _joined(grads: dict[str, torch.Tensor | None]) -> torch.Tensor:
    """Return all gradients as one vector in double precision."""
    parts = [g.detach().to_dense() if g.layout is not torch.strided else g for g in grads.values() if g is not None]
    flat = [torch.view_as_real(g.resolve_conj()).reshape(-1) if g.is_complex() else g.reshape(-1) for g in parts]
    return torch.cat([f.to("cpu", torch.float64) for f in flat]) if flat else torch.zeros(0)


def measure(
    make: Callable[[], object], model: nn.Module, step: Callable[[], object], rounds: int = 5, name: str | None = None
) -> Trial:
    """Run ``step`` plain and inside the context manager of ``make()``, in turn, and return the savings and costs.

    Parameters, buffers, ``.grad`` and the random state are restored before each run and at the end, also after an
    error. The state of an optimizer is not: leave it out of ``step``.

    :param make: makes a new context manager for each run: ``lambda: offload.compressed(dtype=torch.bfloat16)``.
    :param model: the model whose parameters' gradients are compared.
    :param step: runs the forward and returns the loss, a scalar, from which the backward is run. Or runs the backward
        itself and returns ``None``.
    :param rounds: timed runs of each; the median counts. Four more of the plain step and three of the other measure
        memory and gradients.
    :raises BackprobeError: ``rounds`` is below 1, or ``step`` returns a tensor that is not a scalar. Exceptions of
        ``step`` are raised.
    """
    if rounds < 1:
        raise BackprobeError(f"rounds is {rounds}; it is 1 or more")
    plain = contextlib.nullcontext
    runs = _Runs(model, step)
    try:
        first, again, other = runs.grads(plain), runs.grads(plain), runs.grads(make)
        plain_memory, tried_memory = runs.memory(plain), runs.memory(make)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            times[0].append(runs.once(plain))
            times[1].append(runs.once(make))
    finally:
        runs.close()
    if name is None:
        made = make()
        name = type(made).__name__
    return Trial(
        name,
        StepCost(statistics.median(times[0]), *plain_memory),
        StepCost(statistics.median(times[1]), *tried_memory),
        {n: _error(g, other[n]) for n, g in first.items()},
        _error(_joined(first), _joined(other)),
        all(_same(g, other[n]) for n, g in first.items()),
        all(_same(g, again[n]) for n, g in first.items()),
    )


class Trials:
    """The implementation of a ledger's ``try_...`` methods."""

    def __init__(self, model: nn.Module) -> None:
        """Take the model."""
        self._model = model

    def __call__(self, kind: str, what: Any, step: Callable[[], object], rounds: int) -> Trial:
        """Run a trial; return its result.
        :param kind: ``policy`` or ``checkpoint``.
        :param what: the function that makes the policy, or the selection of modules to checkpoint.
        """
        if kind == "policy":
            return measure(what, self._model, step, rounds)
        with checkpointed(self._model, what) as paths:  # raises now if nothing matches
            name = f"checkpoint of {described(what)}: {counted(len(paths), 'module')}"
        return measure(lambda: checkpointed(self._model, what), self._model, step, rounds, name)
