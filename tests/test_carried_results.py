"""The lines that carry a result, with its graph, from one iteration to the next."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import backprobe
from backprobe.findings.rules import Finding

Tensor = torch.Tensor


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.state = nn.GRUCell(3, 4), torch.zeros(2, 4)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return self.cell(x, state)

    def remembers(self, x: Tensor) -> Tensor:
        self.state = self(x, self.state)  # line: attribute
        return self.state


def rebinds(model: Cell, step: Callable[[Tensor], None]) -> None:
    state = torch.zeros(2, 4)
    for x in torch.randn(3, 2, 3):
        state = model(x, state)  # line: rebinds
        step(state.sum())


def keeps(model: Cell, step: Callable[[Tensor], None]) -> None:
    state = torch.zeros(2, 4)
    for x in torch.randn(3, 2, 3):
        new = model(x, state)
        step(new.sum())
        state = new  # line: keeps


def keeps_in_a_tuple(model: Cell, step: Callable[[Tensor], None]) -> None:
    states = (torch.zeros(2, 4),)
    for x in torch.randn(3, 2, 3):
        new = model(x, states[0])
        step(new.sum())
        states = (new, x)  # line: tuple


def keeps_in_the_model(model: Cell, step: Callable[[Tensor], None]) -> None:
    for x in torch.randn(3, 2, 3):
        step(model.remembers(x).sum())


def finding(script: Callable[[Cell, Callable[[Tensor], None]], None], retain: bool) -> Finding:
    torch.manual_seed(0)
    model = Cell()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward(retain_graph=retain)
        optimizer.step()  # line: steps

    with pytest.raises(RuntimeError), backprobe.trace() as watch:
        script(model, step)
    (found,) = watch.findings
    return found


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize(
    ("script", "line"),
    [(rebinds, "rebinds"), (keeps, "keeps"), (keeps_in_a_tuple, "tuple"), (keeps_in_the_model, "attribute")],
)
def test_the_line_that_carries_a_result_is_named(script, line: str, retain: bool) -> None:
    found = finding(script, retain)
    assert found.kind == ("inplace" if retain else "second-backward")
    texts = [site.site.text for site in found.sites if site.role == "carried"]
    assert [text.partition("# line: ")[2] for text in texts] == [line]
    if retain:
        assert (found.confidence, found.sites[0].role) == ("likely", "carried")
        assert next(site.site.text for site in found.sites if site.role == "mutated").endswith("# line: steps")


def test_two_losses_of_one_graph_are_not_carried() -> None:
    torch.manual_seed(0)
    model, other = nn.Linear(3, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    with pytest.raises(RuntimeError), backprobe.trace() as watch:
        hidden = torch.tanh(model(torch.randn(2, 3)))
        first, second = other(hidden).sum(), other(hidden).square().sum()
        first.backward(retain_graph=True)
        optimizer.step()
        second.backward()
    (found,) = watch.findings
    assert found.kind == "inplace" and found.sites[0].role == "mutated"
