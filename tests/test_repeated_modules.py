"""Modules that stand several times in a container, on real models."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import RepeatedModule


class Stack(nn.Module):
    """Applies the modules of a list, one after the other."""

    layers: Any

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values() if isinstance(self.layers, (dict, nn.ModuleDict)) else self.layers:
            x = torch.tanh(layer(x))
        return x


def repeated(make: Callable[[], nn.Module], observes_making: bool = True) -> list[RepeatedModule]:
    torch.manual_seed(0)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    if observes_making:
        session.start()
        model = make()
    else:
        model = make()
        session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    session.stop()
    assert session.error is None, repr(session.error)
    return list(collector.trace(session).facts.of(RepeatedModule))


class Square(nn.Linear):
    """A layer with as many outputs as inputs."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)


class OneExpression(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)] * 3)  # HERE


class ByWayOfVariables(Stack):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        layer = nn.Linear(4, 4)
        layers = [layer] * depth  # HERE
        self.layers = nn.Sequential(*layers)


class AddedToAList(Stack):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(4, 4)]
        layers += (nn.Linear(4, 4),) * depth  # HERE
        self.layers = nn.Sequential(*layers)


class Extended(Stack):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.extend(depth * [nn.Linear(4, 4)])  # HERE


class FromKeys(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(dict.fromkeys(("a", "b", "c"), nn.Linear(4, 4)))  # HERE


class FromRepeat(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(itertools.repeat(nn.Linear(4, 4), 3))  # HERE


def stack_of(make: type[nn.Linear], depth: int) -> nn.ModuleList:
    return nn.ModuleList([make(4, 4)] * depth)  # HERE


class MadeByFunction(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = stack_of(nn.Linear, 3)


class Nested(Stack):
    """Blocks each of which repeats a layer, with others of other classes."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [4] * 3
        self.layers = nn.ModuleList(
            nn.Sequential(
                *[nn.Linear(4, 4), nn.PReLU()] * 3,  # HERE
                nn.LayerNorm(size),
            )
            for size in sizes
        )


class PlainList(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4)] * 3  # HERE
        self.first = self.layers[0]


def outermost() -> nn.Module:
    layers = [nn.Identity(), Square(4)] * 3  # HERE
    return nn.Sequential(*layers)


MAKERS = (OneExpression, ByWayOfVariables, AddedToAList, Extended, FromKeys, FromRepeat, MadeByFunction, PlainList)


@pytest.mark.parametrize("make", [*MAKERS, outermost])
def test_a_repeated_module_is_found(make: Callable[[], nn.Module]) -> None:
    (found,) = repeated(make)
    assert (found.count, found.elements, found.registered) == (3, 20, False)
    assert found.module == ("Square" if make is outermost else "Linear")
    assert len(found.lines) == 1 and found.lines[0].text.endswith("# HERE")
    assert found.container == ("" if make is outermost else "layers") and len(found.parameters) == 2


@pytest.mark.parametrize("make", [OneExpression, outermost])
def test_a_model_that_was_made_earlier(make: Callable[[], nn.Module]) -> None:
    (found,) = repeated(make, observes_making=False)
    assert found.lines[0].text.endswith("# HERE")


def test_each_container_of_a_line_and_no_activations() -> None:
    found = repeated(Nested)
    assert [one.container for one in found] == ["layers.0", "layers.1", "layers.2"]
    assert {(one.module, one.count, one.places) for one in found} == {("Linear", 3, 7)}
    assert all(one.lines[0].text.endswith("# HERE") for one in found)


def test_an_attribute_that_is_repeated_may_be_meant() -> None:
    class Registered(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.layers = nn.ModuleList([self.layer] * 3)

    (found,) = repeated(Registered)
    assert found.registered and found.container == "layers" and found.parameters[0] == "layer.weight"


class Copied(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(one) for one in [nn.Linear(4, 4)] * 3)


class InAComprehension(Stack):
    def __init__(self) -> None:
        super().__init__()
        sizes, layer = (4,) * 3, nn.Linear(4, 4)
        self.layers = nn.ModuleList([layer for _ in sizes])


class NoParameters(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), *[nn.ReLU()] * 3, *[nn.PReLU()] * 2)


class NotTrained(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), *[nn.Linear(4, 4).requires_grad_(False)] * 3)


class SharedByName(Stack):
    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(4, 4)
        self.layers = nn.ModuleList([shared] * 3)


class SharedByComment(Stack):
    def __init__(self) -> None:
        super().__init__()
        # As in ALBERT, one layer is applied three times.
        self.layers = nn.ModuleList([nn.Linear(4, 4)] * 3)


class Iterations(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)] * 3)


class InTime(Stack):
    def __init__(self, num_steps: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)] * num_steps)


class Choice(Stack):
    def __init__(self, separate: bool = False) -> None:
        super().__init__()
        if separate:
            layers = [nn.Linear(4, 4) for _ in range(3)]
        else:
            layers = [nn.Linear(4, 4)] * 3
        self.layers = nn.ModuleList(layers)


class ChoiceInOneExpression(Stack):
    def __init__(self, separate: bool = False) -> None:
        super().__init__()
        layer = nn.Linear(4, 4)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(3)] if separate else [layer] * 3)


HEALTHY = (
    *(Copied, InAComprehension, NoParameters, NotTrained, SharedByName, SharedByComment, Iterations, Choice),
    *(ChoiceInOneExpression, InTime),
)


@pytest.mark.parametrize("make", HEALTHY)
def test_modules_that_are_separate_or_shared_on_purpose(make: Callable[[], nn.Module]) -> None:
    assert repeated(make) == []
