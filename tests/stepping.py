"""Helpers for tests of the debugger and of replays: models, stepping that reads everything, checks for leftovers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import backprobe


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class Noisy(torch.autograd.Function):
    """Draws random numbers in its backward."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * torch.rand_like(g)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ZeroDivisionError("no such gradient")


class Net(nn.Module):
    """An encoder of two layers, the second called twice, and a head."""

    def __init__(self, again: str | None = None) -> None:
        super().__init__()
        self.enc = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh()) for _ in range(2)])
        self.drop, self.head, self.again = nn.Dropout(0.3), nn.Linear(6, 2), again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (*self.enc, self.enc[1]):
            if self.again is None:
                x = x + self.drop(layer(x))
            else:
                x = x + checkpoint(lambda y, f=layer: self.drop(f(y)), x, use_reentrant=self.again == "reentrant")
        return self.head(Noisy.apply(Cube.apply(x)))


def through(dbg: backprobe.Debugger, how: str = "node") -> int:
    """Step to the end and look at everything on the way; how many stops there were."""
    count = 0
    while (stop := dbg.stop) is not None:
        count += 1
        str(stop), stop.saved, stop.gradients, stop.ready, stop.path
        if count % 5 == 0:
            dbg.where(), dbg.graph(3)
            if stop.variable is None:
                dbg.rerun() if "Noisy" not in stop.node.name and "Checkpoint" not in stop.node.name else None
        dbg.step(how)
    return count


def grads(module: nn.Module) -> list[Any]:
    return [p.grad for p in module.parameters()]


def both(run: Callable[[Callable[..., Any]], Any], how: str = "node") -> tuple[Any, Any]:
    """`run` with native calls and with stepped ones, from one random state; what it returns, with the state after.

    `run` gets a function that takes what ``backprobe.debug`` takes, makes the call, and returns its result.
    """
    functions = {"grad": torch.autograd.grad, "backward": torch.autograd.backward, None: torch.Tensor.backward}

    def native(tensors: Any, *args: Any, call: Any = None, **kwargs: Any) -> Any:
        if call is None and not isinstance(tensors, torch.Tensor):
            call = "backward"
        return functions[call](tensors, *args, **kwargs)

    def stepped(*args: Any, **kwargs: Any) -> Any:
        dbg = backprobe.debug(*args, **kwargs)
        through(dbg, how)
        return dbg.result

    found = []
    for make in (native, stepped):
        torch.manual_seed(0)
        found.append([run(make), torch.get_rng_state()])
    return found[0], found[1]


def small() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    return model, torch.randn(5, 3)


def order_of(loss: torch.Tensor) -> list[str | None]:
    dbg = backprobe.debug(loss, retain_graph=True)
    found = []
    while dbg.stop is not None:
        found.append(dbg.node.module)
        dbg.step()
    return found


def hooks_left(root: torch.Tensor) -> int:
    """Hooks on the nodes of a graph."""
    seen, nodes, count = {root.grad_fn}, [root.grad_fn], 0
    for node in nodes:
        for register in (node.register_hook, node.register_prehook):
            handle = register(lambda *a: None)
            count += len(handle.hooks_dict_ref()) - 1
            handle.remove()
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                nodes.append(child)
    return count


def no_threads() -> bool:
    return not any(t.name == "backprobe-debug" and t.is_alive() for t in threading.enumerate())
