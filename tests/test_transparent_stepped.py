"""Stepped backward calls: under compiled autograd, deeply nested, and the objects that they keep alive."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest
import torch
from torch.autograd import Function
from watching import same

import backprobe


def stepped() -> Any:
    return backprobe.breakpoint_backward(action=lambda stop: "node")


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("fresh_dynamo")
def test_a_backward_that_is_compiled_as_a_whole_is_left_alone() -> None:
    from torch._dynamo import compiled_autograd

    def gradient() -> Any:
        x = torch.ones(4, requires_grad=True)
        with compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
            (x * 2).sin().sum().backward()
        return x.grad

    alone = gradient()
    with stepped():
        assert same(gradient(), alone)


def test_the_numbers_of_backward_calls_rise_by_one() -> None:
    """In a process with one thread; with more of them a call takes another number (a known difference)."""
    script = """
import torch, backprobe
x, numbers = torch.ones(2, requires_grad=True), []
with backprobe.breakpoint_backward(action=lambda stop: "node"):
    for _ in range(3):
        y = x.exp()
        y.register_hook(lambda grad: numbers.append(torch._C._current_graph_task_id()))
        y.sum().backward()
print([b - a for a, b in zip(numbers, numbers[1:])])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[1, 1]"


def test_a_call_of_another_thread_over_the_same_nodes_is_not_taken_for_ours() -> None:
    """The other call began earlier, waits in a hook while ours runs, and goes on after it."""
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    began, goes_on = threading.Event(), threading.Event()

    def wait(grad: torch.Tensor) -> None:
        if threading.current_thread() is other:
            began.set()
            assert goes_on.wait(60)

    y.register_hook(wait)
    other = threading.Thread(target=lambda: torch.autograd.grad(y.sum(), x, retain_graph=True))
    other.start()
    assert began.wait(60)
    stops = []

    def action(stop: Any) -> str:
        stops.append((stop.phase, stop.node.name))
        if len(stops) == 2:
            goes_on.set()
            other.join(60)
        return "node"

    with backprobe.breakpoint_backward(action=action):
        y.sum().backward()
    assert not other.is_alive()
    assert stops == [("before", name) for name in ("SumBackward0", "ExpBackward0", "AccumulateGrad")]


class Deep(Function):
    """Runs a backward inside its own, as often as its argument says."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_() - 1
        return ctx.x.detach()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        if ctx.x >= 0:
            with torch.enable_grad():
                Deep.apply(ctx.x).sum().backward()
        return grad


def test_backward_calls_inside_one_another_come_as_deep_as_alone() -> None:
    """Torch goes on in another thread after 60 levels, each of three frames of Python alone."""

    def called(frames: int) -> None:
        if frames:
            called(frames - 1)
        else:
            Deep.apply(torch.tensor(70.0, requires_grad=True)).sum().backward()

    limit = sys.getrecursionlimit()
    called(80)
    with stepped():
        called(80)
    assert sys.getrecursionlimit() == limit


def test_objects_of_a_hook_are_freed_by_the_first_collection() -> None:
    class Held:
        pass

    def graph() -> tuple[torch.Tensor, weakref.ref[Held]]:
        made = torch.tensor(1.0, requires_grad=True).clone()
        node, held = made.grad_fn, Held()

        def hook(*given: Any) -> None:
            assert node is not None and held is not None

        node.register_hook(hook)  # type: ignore[union-attr]
        return made.clone(), weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        with stepped():
            out, held = graph()
            out.backward(retain_graph=True)
            gc.collect()
            out.backward(retain_graph=True)
            assert held() is not None
            del out
            gc.collect()
            assert held() is None
    finally:
        gc.enable()
