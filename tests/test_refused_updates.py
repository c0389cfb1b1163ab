"""Calls of optimizers, schedulers and gradient scalers that torch refuses, on real objects."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import backprobe
from backprobe.records import RefusedUpdate


class Model(nn.Module):
    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4, sparse=sparse)
        self.out = nn.Linear(4, 1)

    def loss(self) -> torch.Tensor:
        return self(torch.arange(6)).square().mean()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(ids))


def train(model: Model, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss().backward()
        optimizer.step()


def step_over() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3)
    for _ in range(5):
        train(model, optimizer, 1)
        schedule.step()  # over


def load_other_groups() -> None:
    model, bigger = Model(), nn.Sequential(Model(), Model())
    old, new = torch.optim.Adam(model.parameters()), torch.optim.Adam(bigger.parameters())
    train(model, old)
    new.load_state_dict(old.state_dict())  # groups


def load_in_another_order() -> None:
    model = Model()
    old = torch.optim.Adam(model.parameters())
    train(model, old)
    new = torch.optim.Adam([*model.out.parameters(), *model.table.parameters()])
    new.load_state_dict(old.state_dict())
    model.loss().backward()
    new.step()  # state


def resize_a_parameter() -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    table = model.table.weight
    table.data = torch.randn(9, 4)
    table.grad = None
    model(torch.arange(9)).square().mean().backward()
    optimizer.step()  # resized


def use_sparse_gradients() -> None:
    model = Model(sparse=True)
    optimizer = torch.optim.Adam(model.parameters())
    model.loss().backward()
    optimizer.step()  # sparse


def give_nothing() -> None:
    torch.optim.SGD([p for p in Model().parameters() if not p.requires_grad])  # empty


def give_a_result() -> None:
    scale = nn.Parameter(torch.ones(1)).double()
    torch.optim.SGD([scale])  # no-leaf


def give_a_parameter_twice() -> None:
    model = Model()
    train(model, torch.optim.SGD(model.parameters()))
    groups: list[dict[str, Any]] = [{"params": model.parameters()}, {"params": model.out.parameters(), "lr": 0.1}]
    torch.optim.SGD(groups)  # twice


def resume_a_schedule() -> None:
    optimizer = torch.optim.SGD(Model().parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 1, last_epoch=3)  # first-rate


def step_without_a_closure() -> None:
    model = Model()
    optimizer: Any = torch.optim.LBFGS(model.parameters())
    model.loss().backward()
    optimizer.step()  # closure


def step_without_a_metric() -> None:
    plateau: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(Model().parameters()))
    plateau.step()  # metrics


def scaled() -> tuple[Model, torch.optim.Optimizer, torch.amp.GradScaler]:
    model, scaler = Model(), torch.amp.GradScaler("cpu")
    scaler.scale(model.loss()).backward()
    return model, torch.optim.SGD(model.parameters()), scaler


def unscale_twice() -> None:
    _, optimizer, scaler = scaled()
    for _ in range(2):
        scaler.unscale_(optimizer)  # unscaled-twice


def unscale_late() -> None:
    _, optimizer, scaler = scaled()
    scaler.step(optimizer)
    scaler.unscale_(optimizer)  # unscaled-late


def step_twice() -> None:
    _, optimizer, scaler = scaled()
    for _ in range(2):
        scaler.step(optimizer)  # stepped-twice


def scale_half_weights() -> None:
    model, scaler = Model().half(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters())
    scaler.scale(model.loss()).backward()
    scaler.unscale_(optimizer)  # half


def step_without_gradients() -> None:
    model, optimizer, scaler = scaled()
    model.zero_grad()
    scaler.step(optimizer)  # nothing-unscaled


def give_a_negative_rate() -> None:
    torch.optim.SGD(Model().parameters(), lr=-1.0)  # other


REFUSED: dict[str, Callable[[], None]] = {
    "over": step_over,
    "groups": load_other_groups,
    "state": load_in_another_order,
    "resized": resize_a_parameter,
    "sparse": use_sparse_gradients,
    "empty": give_nothing,
    "no-leaf": give_a_result,
    "twice": give_a_parameter_twice,
    "first-rate": resume_a_schedule,
    "closure": step_without_a_closure,
    "metrics": step_without_a_metric,
    "unscaled-twice": unscale_twice,
    "unscaled-late": unscale_late,
    "stepped-twice": step_twice,
    "half": scale_half_weights,
    "nothing-unscaled": step_without_gradients,
    "": give_a_negative_rate,
}
MORE: dict[str, dict[str, Any]] = {
    "over": {"owner": "OneCycleLR", "given": 4, "wanted": 3, "step": 3},
    "groups": {"owner": "Adam", "given": 3, "wanted": 6},
    "state": {"parameters": ("out.weight", "out.bias", "table.weight"), "optimizer": "Adam"},
    "resized": {"parameters": ("table.weight",), "source": None},
    "sparse": {"parameters": ("table.weight",)},
    "twice": {"parameters": ("out.weight", "out.bias")},
    "no-leaf": {"operation": "to"},
    "metrics": {"owner": "ReduceLROnPlateau"},
    "half": {"given": 3, "wanted": 3, "owner": "GradScaler", "optimizer": "SGD"},
    "": {"owner": "SGD", "text": "Invalid learning rate: -1.0"},
}


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def refused(call: Callable[[], None]) -> tuple[RefusedUpdate, ...]:
    """Return the records of a traced call that raises."""
    watch = backprobe.trace()
    with pytest.raises((RuntimeError, ValueError, TypeError, AssertionError, KeyError)), watch:
        call()
    return watch.facts.of(RefusedUpdate)


@pytest.mark.parametrize("reason", REFUSED)
def test_the_call_and_its_reason_are_recorded(reason: str) -> None:
    (seen,) = refused(REFUSED[reason])
    assert seen.reason == reason
    assert seen.site.text.endswith(f"# {reason or 'other'}") and seen.site.file == __file__
    for name, value in MORE.get(reason, {}).items():
        assert getattr(seen, name) == value, name


def test_the_line_of_the_result_that_is_no_leaf() -> None:
    (seen,) = refused(give_a_result)
    assert seen.source is not None and "double()" in seen.source.text


def test_errors_of_the_script_in_a_closure_are_its_own() -> None:
    def fails() -> float:
        raise ValueError("the data are gone")

    assert refused(lambda: torch.optim.SGD(Model().parameters()).step(fails)) == ()  # type: ignore[arg-type]


def test_errors_elsewhere_are_not_refused_updates() -> None:
    assert refused(lambda: Model()(torch.tensor([99.0]))) == ()


def test_an_error_that_the_script_handles_is_no_record() -> None:
    with backprobe.trace() as watch:
        with pytest.raises(ValueError, match="empty"):
            give_nothing()
        train(model := Model(), torch.optim.SGD(model.parameters()))
    assert watch.facts.of(RefusedUpdate) == ()
