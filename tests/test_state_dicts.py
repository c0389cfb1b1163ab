"""State dicts that are loaded back although their tensors are the parameters themselves, on real models."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import StateNotCopied


class Training:
    """A small model in training, and what was found in it."""

    def __init__(self, settings: Settings | None = None) -> None:
        torch.manual_seed(0)
        self._collector = Collector()
        self._is_complete = settings is None
        self._session = Session(self._collector, settings or Settings(budget=None))
        self._session.start()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 4)).square().mean().backward()
            self.optimizer.step()

    def found(self) -> list[StateNotCopied]:
        self._session.stop()
        assert self._session.error is None, repr(self._session.error)
        trace = self._collector.trace(self._session)
        assert not (self._is_complete and trace.coverage.gaps), trace.coverage.gaps
        return trace.facts.of(StateNotCopied)


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)])
def test_a_state_that_is_the_model_itself(settings: Settings) -> None:
    training = Training(settings)
    training.step(20)
    best = training.model.state_dict()
    training.step(40)
    training.model.load_state_dict(best)
    training.model.load_state_dict(best)
    (found,) = training.found()[:1]
    assert (found.model, found.taken_at, found.steps, found.exact) == ("Sequential", 19, 40, True)
    assert [one.text for one in found.taken] == ["best = training.model.state_dict()"]
    assert found.loaded is not None and found.loaded.text == "training.model.load_state_dict(best)"


SHALLOW: dict[str, Callable[[nn.Module], Any]] = {
    "dict": lambda model: dict(model.state_dict()),
    "copy": lambda model: copy.copy(model.state_dict()),
    "method": lambda model: model.state_dict().copy(),
    "items": lambda model: {k: v.detach().cpu() for k, v in model.state_dict().items()},
    "data": lambda model: OrderedDict((k, v.data) for k, v in model.state_dict(keep_vars=True).items()),
}


@pytest.mark.parametrize("name", SHALLOW)
def test_a_copy_of_the_dict_only(name: str) -> None:
    training = Training()
    training.step()
    best = SHALLOW[name](training.model)
    training.step()
    training.model.load_state_dict(best)
    (found,) = training.found()
    assert found.steps == 1 and found.exact is (name == "copy") and "state_dict(" in found.taken[0].text


def test_a_state_that_another_state_replaced() -> None:
    training = Training()
    average = copy.deepcopy(training.model)
    training.step(2)
    backup = training.model.state_dict()
    training.model.load_state_dict(average.state_dict())
    training.model.load_state_dict(backup)
    (found,) = training.found()
    assert (found.steps, found.loaded_over) == (0, True)


def test_a_target_that_is_the_model() -> None:
    training = Training()
    online = training.model
    target = online
    for _ in range(3):
        training.step()
        target.load_state_dict(online.state_dict())
    (found,) = training.found()
    assert found.shared and [one.text for one in found.taken] == ["target = online"]
    assert (found.loads, found.exact) == (2, False)


def test_a_target_that_was_loaded_by_assignment() -> None:
    training = Training()
    target = copy.deepcopy(training.model)
    target.load_state_dict(training.model.state_dict(), assign=True)
    for _ in range(3):
        training.step()
        target.load_state_dict(training.model.state_dict())
    (found,) = training.found()
    assert found.shared and found.exact and "assign=True" in found.taken[0].text


def _deep_copy(training: Training) -> None:
    best = copy.deepcopy(training.model.state_dict())
    training.step(3)
    training.model.load_state_dict(best)


def _just_taken(training: Training) -> None:
    for _ in range(3):
        training.step()
        training.model.load_state_dict(training.model.state_dict())
        training.model.load_state_dict(dict(training.model.state_dict()))


def _copied_to_another(training: Training) -> None:
    target = copy.deepcopy(training.model)
    for _ in range(3):
        training.step()
        target.load_state_dict(training.model.state_dict())


def _changed_in_place(training: Training) -> None:
    state = training.model.state_dict()
    for _ in range(3):
        training.step(2)
        for value in state.values():
            value.copy_(value * 0.5)
        training.model.load_state_dict(state)


def _changed_in_part(training: Training) -> None:
    state = training.model.state_dict()
    training.step(2)
    state["0.weight"] = state["0.weight"] * 0.5
    training.model.load_state_dict(state)


def _never_trained(training: Training) -> None:
    other = nn.Linear(3, 3)
    state = other.state_dict()
    training.step(3)
    other.load_state_dict(state)


def test_a_target_that_is_loaded_with_its_own_state() -> None:
    training = Training()
    target = copy.deepcopy(training.model)
    for _ in range(4):
        training.step(5)
        target.load_state_dict(target.state_dict())
    (found,) = training.found()
    assert (found.own, found.loads, found.exact) == (True, 4, True)
    assert found.loaded is not None and "target.load_state_dict(target.state_dict())" in found.loaded.text


def _target(training: Training) -> None:
    target = copy.deepcopy(training.model)
    for _ in range(4):
        training.step(5)
        target.load_state_dict(training.model.state_dict())


def _loaded_five_times_at_once(training: Training) -> None:
    target = copy.deepcopy(training.model)
    for _ in range(5):
        target.load_state_dict(target.state_dict())


def _optimizer(training: Training) -> None:
    training.step()
    state = training.optimizer.state_dict()
    training.step()
    training.optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    "script",
    [
        *(_deep_copy, _just_taken, _copied_to_another, _changed_in_place, _changed_in_part, _never_trained),
        *(_optimizer, _target, _loaded_five_times_at_once),
    ],
)
def test_healthy_uses_of_state_dicts(script: Callable[[Training], None]) -> None:
    training = Training()
    training.step(2)
    script(training)
    assert not training.found()


def test_the_methods_of_torch_stay_as_they_are() -> None:
    methods = nn.Module.state_dict, nn.Module.load_state_dict
    training = Training()
    assert (nn.Module.state_dict, nn.Module.load_state_dict) == methods
    state = training.model.state_dict()
    assert type(state) is OrderedDict and type(state._metadata) is OrderedDict  # type: ignore[attr-defined]
    assert type(training.model._forward_hooks) is OrderedDict
    assert pickle.loads(pickle.dumps(training.model)).state_dict().keys() == state.keys()
    assert "OrderedDict" not in inspect.signature(nn.Module.load_state_dict).parameters
    with pytest.raises(RuntimeError, match="Missing key") as raised:
        training.model.load_state_dict({})
    assert [one.path.name for one in raised.traceback][1:] == ["module.py"]
    training.found()
    assert nn_module.OrderedDict is OrderedDict


def test_a_state_is_not_kept_alive() -> None:
    training = Training()
    training.step()
    state = training.model.state_dict()
    refs = [weakref.ref(state), weakref.ref(state["0.weight"])]
    training.step()
    training.model.load_state_dict(state)
    del state
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    training.found()


def _moved(before: Any, after: Any, share: float) -> Any:
    return {name: before[name] + share * (after[name] - before[name]) for name in before}


def test_a_state_that_is_computed_from_the_model_itself() -> None:
    """Reptile with a snapshot that is no copy: the difference from it is zero."""
    training = Training()
    for _ in range(5):
        before = training.model.state_dict()
        training.step(4)
        training.model.load_state_dict(_moved(before, training.model.state_dict(), 0.25))
    (found,) = training.found()
    assert (found.computed, found.loads, found.steps) == (True, 5, 4)
    assert [one.text for one in found.taken] == ["before = training.model.state_dict()"]


@pytest.mark.parametrize("kept", [copy.deepcopy, lambda state: {k: v.clone() for k, v in state.items()}])
def test_a_state_that_is_computed_from_a_copy(kept: Callable[[Any], Any]) -> None:
    training = Training()
    for _ in range(5):
        before = kept(training.model.state_dict())
        training.step(4)
        training.model.load_state_dict(_moved(before, training.model.state_dict(), 0.25))
    assert not training.found()


def test_equal_values_that_are_loaded_without_steps_between() -> None:
    training = Training()
    training.step(4)
    for _ in range(5):
        state = training.model.state_dict()
        training.model.load_state_dict({k: v.clone() for k, v in state.items()})
        training.step(4)
    assert not training.found()
