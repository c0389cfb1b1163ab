"""Loads with ``strict=False`` of which no name fits, on real models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import backprobe
from backprobe.observe.trackers.checkpoint_names import prefix_between
from backprobe.records import NothingLoaded


class Tied(nn.Module):
    """A model with a norm, and a weight that has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.norm(self.table(ids)))


def train(model: nn.Module, steps: int = 5) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.arange(6)).square().mean().backward()
        optimizer.step()


def copied(model: nn.Module, prefix: str = "") -> dict[str, Any]:
    return {prefix + name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("options", [{"budget": None}, {"level": "minimal"}, {"budget": 0.05}], ids=str)
def test_a_state_none_of_whose_names_the_model_has(options: dict[str, Any]) -> None:
    model = Tied()
    with backprobe.trace(**options) as trace:
        train(model)
        state = copied(model, "module.")
        for _ in range(2):
            model.load_state_dict(state, strict=False)
        model.load_state_dict({}, strict=False)  # as nothing was meant to be loaded
    (found,) = trace.facts.of(NothingLoaded)
    assert (found.model, found.step, found.given, found.loads) == ("Tied", 4, 7, 2)
    assert (found.prefix, found.in_state, found.matching) == ("module.", True, 7)
    assert found.loaded is not None and found.loaded.text == "model.load_state_dict(state, strict=False)"
    assert [one.kind for one in trace.findings] == ["checkpoint-not-loaded"]


def test_loads_that_restore_something_or_may_rename() -> None:
    model = Tied()

    def rename(module: Any, given: dict[str, Any], prefix: str, *_: Any) -> None:
        for name in [name for name in given if name.startswith("old.")]:
            given[name.removeprefix("old.")] = given.pop(name)

    with backprobe.trace(model) as trace:
        state = copied(model)
        train(model)
        model.load_state_dict({"head.weight": state["head.weight"], "other": torch.ones(1)}, strict=False)  # a 2nd name
        model.load_state_dict({"norm.running_mean": state["norm.running_mean"]}, strict=False)
        with pytest.raises(RuntimeError, match="Missing key"):
            model.load_state_dict(copied(model, "module."))
        model.register_load_state_dict_pre_hook(rename)
        model.load_state_dict({f"old.{name}": value for name, value in state.items()}, strict=False)
    assert torch.equal(model.table.weight, state["table.weight"])
    assert not trace.facts.of(NothingLoaded)


@pytest.mark.parametrize(
    ("given", "own", "prefix"),
    [
        (["module.a", "module.b"], ["a", "b"], ("module.", True, 2)),
        (["a", "b"], ["model.net.a", "model.net.b"], ("model.net.", False, 2)),
        (["module._orig_mod.a.weight"], ["a.weight"], ("module._orig_mod.", True, 1)),
        (["encoder.a", "head.b"], ["a", "b"], ("", True, 0)),
        (["module.x", "module.y"], ["a", "b"], ("", True, 0)),
    ],
)
def test_the_prefix_that_keeps_names_from_fitting(
    given: list[str], own: list[str], prefix: tuple[str, bool, int]
) -> None:
    assert prefix_between(given, own) == prefix
