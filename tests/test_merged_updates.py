"""Low-rank updates that are added to a frozen weight between steps, on real models."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import MergedUpdates


class LowRank(nn.Module):
    """A frozen layer with two trained factors, that adds their product to its weight when it is asked to."""

    def __init__(self, transposed: bool = False) -> None:
        super().__init__()
        self.base = nn.Linear(12, 10).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, 12) / 4), nn.Parameter(torch.randn(10, 2) / 4)
        if transposed:  # the spelling of other implementations: x @ A @ B
            self.down, self.up = nn.Parameter(torch.randn(12, 2) / 4), nn.Parameter(torch.randn(2, 10) / 4)
        self.transposed = transposed

    def product(self) -> torch.Tensor:
        return (self.down @ self.up).t() if self.transposed else self.up @ self.down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2 * x @ self.product().t()


class Training:
    """A model with such a layer in training, and what was found in it."""

    def __init__(self, settings: Settings | None = None, transposed: bool = False, dtype: Any = torch.float32) -> None:
        torch.manual_seed(0)
        self._collector = Collector()
        self._session = Session(self._collector, settings or Settings(budget=None))
        self._session.start()
        self.layer = LowRank(transposed)
        self.model = nn.Sequential(self.layer, nn.Tanh(), nn.Linear(10, 1)).to(dtype)
        self.dtype = dtype
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(trained, lr=1e-2)

    def step(self, count: int) -> None:
        for _ in range(count):
            x = torch.randn(16, 12, dtype=self.dtype)
            self.optimizer.zero_grad()
            (self.model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            self.optimizer.step()

    def found(self) -> tuple[MergedUpdates, ...]:
        self._session.stop()
        assert self._session.error is None, repr(self._session.error)
        return tuple(self._collector.trace(self._session).facts.of(MergedUpdates))


Change = Callable[[Training], None]


def in_place(training: Training) -> None:
    with torch.no_grad():
        training.layer.base.weight += 2 * training.layer.product()


def by_data(training: Training) -> None:
    training.layer.base.weight.data = training.layer.base.weight.data + training.layer.product().detach()


def by_data_in_place(training: Training) -> None:
    training.layer.base.weight.data.add_(training.layer.product().detach(), alpha=0.5)


def trained_with(change: Change, times: int = 5, **more: Any) -> tuple[MergedUpdates, ...]:
    training = Training(**more)
    training.step(8)
    for _ in range(times):
        change(training)
        training.step(20)
    return training.found()


SETTINGS = [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)]


@pytest.mark.parametrize("settings", SETTINGS, ids=["all", "minimal", "budget"])
@pytest.mark.parametrize("change", [in_place, by_data, by_data_in_place])
def test_an_update_that_stays_in_the_weight(change: Change, settings: Settings) -> None:
    (found,) = trained_with(change, settings=settings)
    assert (found.parameter, set(found.factors)) == ("0.base.weight", {"0.up", "0.down"})
    assert (found.count, found.step, found.last, found.steps) == (5, 8, 88, 108)
    assert found.stepped is not None and found.stepped.text == "self.optimizer.step()"
    if found.exact:
        (line,) = found.lines
        assert line.function == change.__name__ and line.text.startswith("training.layer.base.weight")
        assert found.called is not None and found.called.text == "change(training)"
    else:
        assert settings is not SETTINGS[0]


@pytest.mark.parametrize("more", [{"transposed": True}, {"dtype": torch.bfloat16}, {"dtype": torch.float64}])
def test_other_spellings_and_dtypes(more: dict[str, Any]) -> None:
    (found,) = trained_with(in_place, **more)
    assert found.count == 5


def subtracted(training: Training) -> None:
    in_place(training)
    with torch.no_grad():
        training.model(torch.randn(4, 12))
        training.layer.base.weight -= 2 * training.layer.product()


def restored(training: Training) -> None:
    kept = training.layer.base.weight.detach().clone()
    in_place(training)
    training.layer.base.weight.data.copy_(kept)


def restarted(training: Training) -> None:
    """As in ReLoRA: the update is merged on purpose, and the factors begin anew."""
    in_place(training)
    with torch.no_grad():
        training.layer.up.zero_()
        training.layer.down.normal_(std=0.25)


def merged_copy(training: Training) -> None:
    merged = copy.deepcopy(training.layer)
    with torch.no_grad():
        merged.base.weight += 2 * merged.product()


def loaded(training: Training) -> None:
    training.model.load_state_dict(copy.deepcopy(training.model.state_dict()))


def perturbed(training: Training) -> None:
    training.layer.base.weight.data.add_(0.1 * torch.randn(10, 12))


def masked(training: Training) -> None:
    training.layer.base.weight.data.mul_(torch.rand(10, 12) > 0.1)


def averaged(training: Training) -> None:
    """The frozen weight follows something, as that of a teacher does."""
    training.layer.base.weight.data.lerp_(torch.ones(10, 12), 0.01)


@pytest.mark.parametrize("change", [subtracted, restored, restarted, merged_copy, loaded, perturbed, masked, averaged])
def test_what_only_looks_like_it(change: Change) -> None:
    assert trained_with(change) == ()


def test_a_product_that_is_subtracted_after_some_steps() -> None:
    training = Training()
    training.step(8)
    for _ in range(4):
        product = training.layer.product().detach().clone()
        training.layer.base.weight.data.add_(product)
        training.step(10)
        training.layer.base.weight.data.sub_(product)
        training.step(10)
    assert training.found() == ()


def test_a_single_merge() -> None:
    assert trained_with(in_place, times=1) == ()


def test_a_model_that_is_cast_in_mid_run() -> None:
    training = Training()
    training.step(8)
    training.model.to(torch.float64)
    training.dtype = torch.float64
    training.optimizer.state.clear()
    training.step(8)
    for _ in range(3):
        in_place(training)
        training.step(8)
    (found,) = training.found()
    assert (found.count, found.step) == (3, 16)


def test_a_model_that_is_gone() -> None:
    training = Training()
    training.step(8)
    del training.layer, training.model
    training.optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    gc.collect()
    for _ in range(3):
        training.optimizer.step()
    assert training.found() == ()
