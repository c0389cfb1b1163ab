"""Trains through tensor subclasses, plain and watched in each way, and prints the gradients as JSON.

Run as a script, in a process of its own: an op on a subclass with dispatch off ends the process.

    python tests/subclassed.py KIND,KIND FORM,FORM WATCH,WATCH
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import backprobe as bp
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


class Wrapped(torch.Tensor):
    """A wrapper subclass of a user's own, which counts its ops."""

    count = 0
    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, strides=inner.stride())

    def __init__(self, inner: torch.Tensor) -> None:
        self.held = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return Wrapped(inner["held"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Wrapped.count += 1
        tree = torch.utils._pytree
        args, kwargs = tree.tree_map_only(Wrapped, lambda t: t.held, (args, kwargs or {}))
        return tree.tree_map_only(torch.Tensor, Wrapped, func(*args, **kwargs))


def opened(t: Any) -> Any:
    return t.held if isinstance(t, Wrapped) else t.a if isinstance(t, TwoTensor) else t


class Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inner: torch.Tensor, kind: Any) -> Any:
        return kind(inner)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return opened(grad), None


class Unwrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outer: Any) -> Any:
        ctx.kind = type(outer)
        return opened(outer).clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return Wrapped(grad) if ctx.kind is Wrapped else TwoTensor(grad, grad)


@cache
def mesh() -> Any:
    if not dist.is_initialized():
        store = os.path.join(tempfile.mkdtemp(), "store")
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    return init_device_mesh("cpu", (1,))


#: Kind -> what wraps a tensor, and what takes it out again.
KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "dtensor": (lambda t: DTensor.from_local(t, mesh(), [Replicate()]), lambda t: t.to_local()),
    "nested": (lambda t: torch.nested.as_nested_tensor([t, t[:2]], layout=torch.jagged), lambda t: t.values()),
    "two": (lambda t: Wrap.apply(t, lambda inner: TwoTensor(inner.detach(), inner.clone())), Unwrap.apply),
    "own": (lambda t: Wrap.apply(t, Wrapped), Unwrap.apply),
}


def work(t: Any) -> Any:
    return (t + t).sin() * t


def reduced(t: Any) -> Any:
    """Adds up over the ranks."""
    return torch.distributed._functional_collectives.all_reduce(work(t), "sum", dist.group.WORLD)


FORMS: dict[str, Callable[[Any], Any]] = {
    "eager": work,
    "checkpointed": lambda t: checkpoint(work, t, use_reentrant=False),
    "compiled": torch.compile(work, backend="aot_eager"),
}


def sine_of(mesh: Any, t: Any) -> Any:
    return DTensor.from_local(t, mesh, [Replicate()]).sin().to_local()


COMPILED_SINE, COMPILED_REDUCTION = (torch.compile(function, backend="eager") for function in (sine_of, reduced))
#: Functions of plain tensors that are not to run again: a subclass is made inside, or other ranks take part.
INSIDE: dict[str, Callable[[Any], Any]] = {
    "made inside": lambda t: COMPILED_SINE(mesh(), t),
    "collective": COMPILED_REDUCTION,
}


class Net(torch.nn.Module):
    def __init__(self, kind: str, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.kind, self.form = kind, form

    def forward(self) -> Any:
        if self.form in INSIDE:
            return INSIDE[self.form](self.weight * 2)
        wrap, unwrap = KINDS[self.kind]
        return unwrap(FORMS[self.form](wrap(self.weight * 2)))


def step(net: Net) -> Any:
    net.zero_grad()
    net().sum().backward()
    assert net.weight.grad is not None
    return net.weight.grad.tolist()


class Watched(AbstractContextManager[None]):
    """A session with `settings`. What fails in it is an error here.

    :ivar not_kept: how many calls of compiled regions it did not look into.
    """

    not_kept = 0

    def __init__(self, **settings: Any) -> None:
        self._collector = Collector()
        self._session = Session(self._collector, Settings(**settings))

    def __enter__(self) -> None:
        self._session.start()

    def __exit__(self, *error: object) -> None:
        self._session.stop()
        trace = self._collector.trace(self._session)
        Watched.not_kept = sum(one.count for one in trace.coverage.unseen if one.what == "calls of compiled regions")
        faults = [one for one in trace.coverage.unseen if "error" in one.what]
        wrong = [one for one in trace.findings if one.severity == "error"]
        assert self._session.error is None and not faults and not wrong, (self._session.error, faults, wrong)


WATCHES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "plain": nullcontext,
    "trace": Watched,
    "explain": lambda: Watched(level="full"),
    "asked": lambda: Watched(
        layer_stats=1, checks=frozenset(("functions", "compiled", "divergence", "memory", "checkpoints", "levels"))
    ),
    "compared": lambda: Watched(record_ops=True),
    "stepped": lambda: bp.breakpoint_backward(action=lambda stop: "node"),
}


def run(kind: str, form: str, watch: str) -> Any:
    net = Net(kind, form)
    if watch == "captured":
        with bp.capture(net) as acts:
            found = step(net)
        str(acts)
        return found
    if watch == "saved":
        with bp.saved_tensors(net) as ledger:
            found = step(net)
        str(ledger)
        return found
    with WATCHES[watch]():
        return [step(net) for _ in range(2)][-1]


def main(kinds: str, forms: str, watches: str) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    if "dtensor" in kinds:
        mesh()
    for kind in kinds.split(","):
        for form in forms.split(","):
            for watch in watches.split(","):
                Watched.not_kept = 0
                if form in ("compiled", *INSIDE):
                    torch._dynamo.reset()  # a session knows the regions that were compiled while one was on
                found = run(kind, form, watch)
                print(json.dumps([kind, form, watch, found, Watched.not_kept]), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
