"""Trainable tensors that a model uses and does not register, wherever it keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from watching import watched


class Holder:
    def __init__(self, inside: Any) -> None:
        self.inside = inside


class Model(nn.Module):
    """Reads the weights of a module that it does not call."""

    def __init__(self, keep: Callable[[nn.Linear], Any]) -> None:
        super().__init__()
        self.first, linear = nn.Linear(4, 4), nn.Linear(4, 4)
        self.kept = keep(linear)
        self.read: Callable[[], Any] = lambda: (linear.weight, linear.bias)

    def forward(self, x: Any) -> Any:
        return F.linear(self.first(x), *self.read())


def findings(model: nn.Module) -> list[Any]:
    session, sink = watched()
    session.start()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    session.stop()
    assert session.error is None
    return list(sink.trace(session).findings)


#: How it is kept, the path of what is read, what holds it.
WAYS: dict[str, tuple[Callable[[nn.Linear], Any], str, str]] = {
    "list": (lambda linear: [linear], "kept.0", "a plain list"),
    "dict": (lambda linear: {"a": linear}, "kept.a", "a plain dict"),
    "dict of lists": (lambda linear: {"a": [linear]}, "kept.a.0", "a plain dict"),
    "object": (Holder, "kept.inside", "a plain object"),
    "inside another": (lambda linear: [nn.Sequential(nn.ReLU(), linear)], "kept.0.1", "a plain list"),
}


@pytest.mark.parametrize("way", WAYS)
def test_weights_read_from_an_unregistered_module(way: str) -> None:
    keep, path, how = WAYS[way]
    (found,) = findings(Model(keep))
    assert (found.kind, found.module, found.tensor) == ("unregistered-parameter", "", "kept")
    assert set(found.parameters) == {f"{path}.weight", f"{path}.bias"}
    assert found.evidence["held_in"] == how
    assert [at.site.text for at in found.sites if at.role == "cut"][:1] == ["self.kept = keep(linear)"]


def test_a_registered_module_whose_weights_are_read_is_not_reported() -> None:
    assert findings(Model(lambda linear: nn.ModuleDict({"a": nn.ModuleList([linear])}))) == []
    assert findings(Model(lambda linear: linear)) == []


class Grows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.more, self.grown = (), False  # type: ignore[var-annotated]

    def forward(self, x: Any) -> Any:
        if not self.grown:
            self.grow()
        return self.more[0](self.first(x))

    def grow(self) -> None:
        self.more = (nn.Linear(4, 4),)  # type: ignore[assignment]
        self.grown = True


def test_the_finding_has_the_line_that_creates_them() -> None:
    """And not the one that keeps a place for them."""
    (found,) = findings(Grows())
    cuts = [at.site.text for at in found.sites if at.role == "cut"]
    assert found.kind == "unregistered-parameter" and cuts[0].startswith("self.more = (nn.Linear(4, 4),)")
