"""Backward calls that are stepped: compiled as a whole, deep inside one another, and what they leave alive."""

from __future__ import annotations

import gc
import sys
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


def test_what_a_hook_keeps_alive_goes_with_the_first_collection() -> None:
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
