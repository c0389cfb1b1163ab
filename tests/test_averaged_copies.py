"""Copies of a model whose weights are averaged, and their running statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


class Copy:
    """An average of a model, in eval mode if not asked otherwise."""

    def __init__(self, model: nn.Module, train: bool = False) -> None:
        self.net = copy.deepcopy(model).train(train)

    @torch.no_grad()
    def update(self, model: nn.Module, buffers: bool = False) -> None:
        for mine, new in zip(self.net.parameters(), model.parameters(), strict=True):
            mine.lerp_(new, 0.1)
        for mine, new in zip(self.net.buffers(), model.buffers(), strict=True) if buffers else ():
            mine.copy_(new)


def found(use: Callable[[Copy, nn.Module, torch.Tensor], Any], offset: float = 4.0, train: bool = False) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    average = Copy(model, train)
    collector = Collector()
    session = Session(collector, Settings(budget=None))
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(20):
        x = torch.randn(16, 4) + offset
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        use(average, model, x)
    session.stop()
    assert session.error is None, repr(session.error)
    return collector.trace(session).findings


def evaluated(average: Copy, model: nn.Module, x: torch.Tensor) -> None:
    average.update(model)
    with torch.no_grad():
        average.net(x)


def test_an_average_that_lacks_the_statistics() -> None:
    (one,) = found(evaluated)
    assert (one.kind, one.severity, one.parameters) == ("buffers-left-behind", "warning", ("1.running_mean",))
    assert [site.role for site in one.sites] == ["cause", "written"]
    assert one.sites[0].site.text.startswith("for mine, new in zip(self.net.parameters()")


def test_an_average_that_is_not_called_may_only_store_weights() -> None:
    (one,) = found(lambda average, model, x: average.update(model))
    assert one.severity == "info"


def test_averages_that_are_as_they_should_be() -> None:
    assert found(lambda average, model, x: average.update(model, buffers=True)) == []
    assert found(evaluated, train=True) == []  # the copy takes statistics of its own
    assert found(lambda average, model, x: average.net.load_state_dict(model.state_dict())) == []
    assert found(lambda average, model, x: average.net(x)) == []  # a fixed copy


def test_a_write_to_a_view_that_torch_refuses_to_make_a_node_for() -> None:
    def use(average: Copy, model: nn.Module, x: torch.Tensor) -> None:
        with torch.no_grad():
            row = x[0]
        x.mul_(2)
        row.add_(1)

    assert found(use) == []
