"""Weights that are replaced between two steps of their optimizer, on real models."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optim
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import WeightsPutBack


class Training:
    """A small model in training, and what was found in it."""

    def __init__(self, settings: Settings | None = None, **options: Any) -> None:
        torch.manual_seed(0)
        self._collector = Collector()
        self._session = Session(self._collector, settings or Settings(budget=None))
        self._session.start()
        self.model = nn.Sequential(nn.Embedding(50, 4), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2, **options)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            words = torch.randint(0, 8, (8,))
            self.optimizer.zero_grad()
            (self.model(words) - words[:, None] / 4).square().mean().backward()
            self.optimizer.step()

    def found(self) -> tuple[WeightsPutBack, ...]:
        self._session.stop()
        assert self._session.error is None, repr(self._session.error)
        return tuple(self._collector.trace(self._session).facts.of(WeightsPutBack))


SETTINGS = [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_same_state_is_loaded_again_and_again(settings: Settings) -> None:
    training = Training(settings)
    start = copy.deepcopy(training.model.state_dict())
    for _ in range(4):
        training.model.load_state_dict(start)
        training.step(30)
    (found,) = training.found()
    assert (found.how, found.count, found.lost, found.since, found.replaced) == ("same", 3, 30, 0, (30, 60, 90))
    assert [site.text for site in found.lines] == ["training.model.load_state_dict(start)"]
    assert found.exact
    assert found.called is None
    assert found.stepped is not None
    assert found.stepped.text == "self.optimizer.step()"


def test_a_model_that_is_cast_in_mid_run() -> None:
    training = Training()
    training.step(20)
    training.model.to(torch.bfloat16)
    training.optimizer.state.clear()
    for _ in range(20):
        words = torch.randint(0, 8, (8,))
        training.optimizer.zero_grad()
        training.model(words).float().square().mean().backward()
        training.optimizer.step()
    assert training.found() == ()


def test_a_checkpoint_that_is_not_the_start() -> None:
    training = Training()
    training.step(15)
    kept = copy.deepcopy(training.model.state_dict())
    for _ in range(3):
        training.step(25)
        training.model.load_state_dict(kept)
    training.step(25)
    (found,) = training.found()
    assert (found.how, found.count, found.since, found.replaced) == ("same", 3, 15, (40, 65, 90))


def copy_data(training: Training, kept: list[torch.Tensor]) -> None:
    for p, old in zip(training.model.parameters(), kept, strict=True):
        p.data.copy_(old)  # COPIED


def assign_data(training: Training, kept: list[torch.Tensor]) -> None:
    for p, old in zip(training.model.parameters(), kept, strict=True):
        p.data = old.clone()


def copy_in_place(training: Training, kept: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for p, old in zip(training.model.parameters(), kept, strict=True):
            p.copy_(old)


@pytest.mark.parametrize("put_back", [copy_data, assign_data, copy_in_place])
def test_other_ways_to_write(put_back: Callable[[Training, list[torch.Tensor]], None]) -> None:
    training = Training()
    kept = [p.detach().clone() for p in training.model.parameters()]
    for _ in range(4):
        put_back(training, kept)
        training.step(40)
    (found,) = training.found()
    assert (found.how, found.count, found.exact) == ("same", 3, True)
    assert [site.function for site in found.lines] == [put_back.__name__]
    assert found.called is not None
    assert found.called.text == "put_back(training, kept)"


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_average_that_stays(settings: Settings) -> None:
    training = Training(settings)
    average = AveragedModel(training.model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
    for step in range(200):
        training.step()
        average.update_parameters(training.model)
        if step % 50 == 49:
            training.model.load_state_dict(average.module.state_dict())
    training.step(20)
    (found,) = training.found()
    assert (found.how, found.count, found.lost) == ("average", 4, 50)
    assert 0.3 < found.share < 1
    assert [site.text for site in found.lines] == ["training.model.load_state_dict(average.module.state_dict())"]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_slow_average_that_replaces_the_weights_often(settings: Settings) -> None:
    """Training that moves straight back: the average hardly moves in ten steps."""
    training = Training(settings)
    average = AveragedModel(training.model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    for step in range(160):
        training.step()
        average.update_parameters(training.model)
        if step % 10 == 9:
            training.model.load_state_dict(average.module.state_dict())
    training.step(20)
    (found,) = training.found()
    assert (found.how, found.lost) == ("average", 10) and found.count >= 15
    assert 0.95 < found.share < 1
    assert [site.text for site in found.lines] == ["training.model.load_state_dict(average.module.state_dict())"]


# What is no mistake


def swapped_in_and_out(training: Training) -> None:
    average = AveragedModel(training.model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
    for _ in range(6):
        training.step(30)
        average.update_parameters(training.model)
        trained = copy.deepcopy(training.model.state_dict())
        training.model.load_state_dict(average.module.state_dict())
        training.model(torch.randint(0, 8, (8,)))
        training.model.load_state_dict(trained)


def lookahead(training: Training) -> None:
    slow = [p.detach().clone() for p in training.model.parameters()]
    for _ in range(8):
        training.step(25)
        with torch.no_grad():
            for kept, p in zip(slow, training.model.parameters(), strict=True):
                kept.lerp_(p, 0.5)
                p.copy_(kept)


def lookahead_in_short_turns(training: Training) -> None:
    slow = [p.detach().clone() for p in training.model.parameters()]
    for _ in range(20):
        training.step(10)
        with torch.no_grad():
            for kept, p in zip(slow, training.model.parameters(), strict=True):
                kept.lerp_(p, 0.2)
                p.copy_(kept)


def best_of_short_parts(training: Training) -> None:
    for _ in range(12):
        training.step(6)
        best = copy.deepcopy(training.model.state_dict())
        training.step(6)
        training.model.load_state_dict(best)
    training.step(20)


def clamped_in_each_step(training: Training) -> None:
    for _ in range(120):
        training.step()
        with torch.no_grad():
            for p in training.model.parameters():
                p.clamp_(-0.3, 0.3)


def new_optimizer_for_each_part(training: Training) -> None:
    start = copy.deepcopy(training.model.state_dict())
    for _ in range(5):
        training.model.load_state_dict(start)
        training.optimizer = torch.optim.Adam(training.model.parameters(), lr=1e-2)
        training.step(30)


def state_of_the_optimizer_too(training: Training) -> None:
    start = copy.deepcopy((training.model.state_dict(), training.optimizer.state_dict()))
    for _ in range(5):
        training.model.load_state_dict(start[0])
        training.optimizer.load_state_dict(copy.deepcopy(start[1]))
        training.step(30)


def for_each_task(training: Training) -> None:
    start = copy.deepcopy(training.model.state_dict())
    for _task in range(5):
        training.model.load_state_dict(start)
        training.step(30)


def lower_rate_on_a_plateau(training: Training) -> None:
    training.step(40)
    best = copy.deepcopy(training.model.state_dict())
    for _ in range(4):
        training.step(30)
        training.model.load_state_dict(best)
        training.optimizer.param_groups[0]["lr"] *= 0.5
    training.step(30)


def best_at_the_end(training: Training) -> None:
    training.step(40)
    best = copy.deepcopy(training.model.state_dict())
    training.step(40)
    training.model.load_state_dict(best)
    training.step(30)
    training.model.load_state_dict(best)
    training.step(3)


def best_of_each_part(training: Training) -> None:
    for _ in range(5):
        training.step(20)
        best = copy.deepcopy(training.model.state_dict())
        training.step(20)
        training.model.load_state_dict(best)
    training.step(20)


def federated(training: Training) -> None:
    total = copy.deepcopy(training.model)
    others = [copy.deepcopy(training.model) for _ in range(2)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (training.model, *others)]
    models = (training.model, *others)
    for _ in range(6):
        for model, optimizer in zip(models, optimizers, strict=True):
            model.load_state_dict(total.state_dict())
            training.model, training.optimizer = model, optimizer
            training.step(25)
        with torch.no_grad():
            for each in zip(total.parameters(), *(m.parameters() for m in models), strict=True):
                each[0].copy_(torch.stack(each[1:]).mean(0))


def reset_of_the_head(training: Training) -> None:
    head: Any = training.model[3]
    start = copy.deepcopy(head.state_dict())
    for _ in range(5):
        training.step(30)
        head.load_state_dict(start)
    training.step(30)


def pruned_now_and_then(training: Training) -> None:
    for _ in range(6):
        training.step(30)
        with torch.no_grad():
            for p in training.model.parameters():
                p.mul_(p.abs() > p.abs().median())


def shrunk_and_perturbed(training: Training) -> None:
    for _ in range(5):
        training.step(30)
        with torch.no_grad():
            for p in training.model.parameters():
                p.mul_(0.5).add_(0.01 * torch.randn_like(p))


def reptile(training: Training) -> None:
    for _ in range(6):
        before = copy.deepcopy(training.model.state_dict())
        training.step(25)
        after = training.model.state_dict()
        training.model.load_state_dict({k: before[k] + 0.3 * (after[k] - before[k]) for k in before})


@pytest.mark.parametrize(
    "train",
    [
        *(swapped_in_and_out, lookahead, clamped_in_each_step, new_optimizer_for_each_part, state_of_the_optimizer_too),
        *(for_each_task, lower_rate_on_a_plateau, best_at_the_end, best_of_each_part, federated, reset_of_the_head),
        *(pruned_now_and_then, shrunk_and_perturbed, reptile, lookahead_in_short_turns, best_of_short_parts),
    ],
)
def test_what_is_no_mistake(train: Callable[[Training], None]) -> None:
    training = Training()
    train(training)
    assert training.found() == ()


def test_hooks_are_removed_and_nothing_is_kept_alive() -> None:
    before = len(optim._global_optimizer_pre_hooks), len(optim._global_optimizer_post_hooks)
    training = Training()
    start = copy.deepcopy(training.model.state_dict())
    training.step(20)
    training.model.load_state_dict(start)
    training.step(20)
    weight: Any = training.model[1]
    gone = weakref.ref(weight.weight)
    del weight
    training.model, training.optimizer = nn.Sequential(), torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    gc.collect()
    assert gone() is None
    training.found()
    assert (len(optim._global_optimizer_pre_hooks), len(optim._global_optimizer_post_hooks)) == before
