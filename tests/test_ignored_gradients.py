"""Custom functions whose backward never reads the gradients that it is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import backprobe
from backprobe.records import IgnoredGradient
from backprobe.source.definitions import ignores_gradients

Tensor = torch.Tensor


class Base(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()


class Ignores(Base):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x  # line: returns


class IgnoresOnce(Base):
    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        (x,) = ctx.saved_tensors
        return 2 * x  # line: returns once


class Reads(Base):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class ReadsInside(Base):
    @staticmethod
    def backward(ctx, grad):
        def times(value: Tensor) -> Tensor:
            return value * grad

        (x,) = ctx.saved_tensors
        return times(2 * x)


class ReadsAll(Base):
    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * locals()["grad"]


class Stops(Base):
    @staticmethod
    def backward(ctx, grad):
        return None


class Loss(torch.autograd.Function):
    """A function that returns the loss itself: the gradient that comes in is one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0]


def found(function: Callable[[Tensor], Tensor], loss: Callable[[Tensor], Tensor], steps: int = 2):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    with backprobe.trace() as watch:
        for _ in range(steps):
            loss(function(model(torch.randn(4, 3)))).backward()
    return watch.facts.of(IgnoredGradient)


@pytest.mark.parametrize(("function", "line"), [(Ignores, "returns"), (IgnoresOnce, "returns once")])
def test_a_backward_that_ignores_its_gradient_is_recorded_once(function, line: str) -> None:
    (seen,) = found(function.apply, torch.mean)
    assert seen.returned is not None and seen.returned.text.endswith(f"# line: {line}")
    assert (seen.node, seen.step, seen.parameters) == (f"{function.__name__}Backward", 0, ("bias", "weight"))
    assert seen.backward is not None and "backward()" in seen.backward.text


@pytest.mark.parametrize("function", [Reads, ReadsInside, ReadsAll, Stops])
def test_a_backward_that_reads_its_gradient_or_returns_none_is_not(function) -> None:
    others = torch.zeros(3, requires_grad=True)
    assert found(lambda x: function.apply(x) + others, torch.mean) == ()


def test_a_gradient_of_one_may_be_left_out() -> None:
    assert found(Loss.apply, lambda out: out) == ()
    assert len(found(Loss.apply, lambda out: 0.5 * out)) == 1


def test_gradients_are_as_without_us() -> None:
    def run(watched: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        with backprobe.trace() if watched else torch.enable_grad():
            Ignores.apply(model(torch.randn(4, 3))).mean().backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))


def test_gradients_that_a_function_reads() -> None:
    def named_alike(ctx, grad):
        return ctx.grad, [grad + 1 for grad in (1, 2)]

    def variadic(ctx, *grads):
        return [2 * grad for grad in grads]

    def changed(ctx, grad):
        grad *= 2

    def keeps_none(ctx):
        return ctx

    found = [ignores_gradients(one.__code__) for one in (named_alike, variadic, changed, keeps_none)]
    assert found == [True, False, False, False]
