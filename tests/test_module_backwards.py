"""Methods ``backward`` of modules that nothing calls, on real modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watching import alone_and_watched, same

import backprobe
from backprobe.records import ModuleBackward
from backprobe.source.new_lines import SHOWS, has_run

STEPS = 40


class Reverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def backward(self, grad_output: torch.Tensor) -> torch.Tensor:  # reverse
        return -grad_output


class GradientScale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, out: torch.Tensor) -> torch.Tensor:
        return out * 0.1


class TurnGradient(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def backward(self, out: torch.Tensor) -> torch.Tensor:
        return -out


class Unused(Reverse):
    pass


class ByHand(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        return -grad


class ByName(ByHand):
    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        return -2 * grad


class AsHook(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.view_as(x)
        if out.requires_grad:
            out.register_hook(self.backward)
        return out

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        return -grad


class Inverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def backward(self, z: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # no gradient
            return z / 2


class Wrapper(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        print(loss, retain_graph)


class Starts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.out = x
        return x

    def backward(self, grad: torch.Tensor) -> None:
        (self.out * grad).sum().backward()


class Abstract(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


class Applies(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Double.apply(x)  # type: ignore[no-any-return]


def trained(layer: nn.Module, after: Callable[[torch.Tensor], Any] = id, steps: int = STEPS, grad: bool = True) -> Any:
    """Train a model with this layer in it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with backprobe.trace(model) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            out = model(torch.ones(2, 3)) if grad else model[2](model[0](torch.ones(2, 3)))
            out.square().mean().backward()
            after(out.detach())
            optimizer.step()
            if not grad:
                with torch.no_grad():
                    model(torch.ones(2, 3))
    return watch.facts.of(ModuleBackward)


@pytest.mark.parametrize("layer", [Reverse, GradientScale, TurnGradient, Unused])
def test_a_method_that_nothing_calls(layer: type[nn.Module]) -> None:
    (seen,) = trained(layer())
    assert (seen.modules, seen.class_name, seen.steps) == (("1",), layer.__name__, STEPS)
    assert "def backward" in seen.defined.text and seen.defined.file == __file__
    assert seen.is_certain is SHOWS or seen.possible
    assert seen.called is not None and "model(torch.ones(2, 3))" in seen.called.text


def test_a_short_run_is_not_certain() -> None:
    found = trained(Reverse(), steps=3)
    assert [one.is_certain for one in found] in ([], [False])


def test_a_method_that_the_script_calls() -> None:
    by_hand = ByHand()
    assert trained(by_hand, lambda out: by_hand.backward(out)) == ()
    by_name = ByName()
    assert trained(by_name, getattr(by_name, "".join(("back", "ward")))) == ()
    assert trained(AsHook()) == ()


@pytest.mark.parametrize("layer", [Inverse, Wrapper, Starts, Abstract, Applies, nn.Identity])
def test_methods_that_are_something_else(layer: type[nn.Module]) -> None:
    assert trained(layer()) == ()


def test_a_module_that_runs_without_gradients_only() -> None:
    assert trained(Reverse(), grad=False) == ()


def test_a_module_that_each_forward_makes_anew() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return TurnGradient()(self.first(x))  # type: ignore[no-any-return]

    (seen,) = trained(Net())
    assert seen.modules == ("",) and seen.called is not None and "TurnGradient()" in seen.called.text


def test_gradients_stay_bit_for_bit() -> None:
    def make() -> Callable[[], Any]:
        model = nn.Sequential(nn.Linear(3, 4), Reverse(), nn.Linear(4, 1))

        def step() -> Any:
            model.zero_grad()
            model(torch.randn(2, 3)).square().mean().backward()
            return [p.grad for p in model.parameters()]

        return step

    alone, seen, _ = alone_and_watched(make)
    assert same(alone, seen)


@pytest.mark.skipif(not SHOWS, reason="this Python does not show what has run")
def test_whether_code_has_run() -> None:
    def run(x: int) -> int:
        return x + 1

    assert has_run(run.__code__) is False
    for i in range(50):
        run(i)
    assert has_run(run.__code__) is True
