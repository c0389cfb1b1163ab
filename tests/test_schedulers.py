"""Schedulers of learning rates, on real models."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.records import PlateauMetric, ScheduleOfOther, ScheduleRestarted, ScheduleSeen

R = TypeVar("R")
#: PyTorch warns about a scheduler whose optimizer does not step.
UNUSED = pytest.mark.filterwarnings("ignore:Detected call of")


class Training:
    """A small model in training, and the records of it."""

    def __init__(self, settings: Settings | None = None, optimizer: type[Optimizer] = torch.optim.SGD) -> None:
        torch.manual_seed(0)
        self._collector = Collector()
        self._session = Session(self._collector, settings or Settings(budget=None), whole=True)
        self._session.start()
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = optimizer(self.model.parameters(), lr=0.1)  # type: ignore[call-arg]

    def step(self, count: int, each: Callable[[int], Any] = lambda step: None) -> None:
        for step in range(count):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 4)).square().mean().backward()
            self.optimizer.step()
            each(step)

    def found(self, kind: type[R]) -> list[R]:
        self._session.stop()
        assert self._session.error is None, repr(self._session.error)
        trace = self._collector.trace(self._session)
        assert not any("scheduler" in str(gap) for gap in trace.coverage.gaps), trace.coverage.gaps
        return list(trace.facts.of(kind))


@pytest.mark.parametrize("settings", [Settings(budget=None), Settings("minimal"), Settings(budget=0.05)])
def test_calls_steps_and_rates(settings: Settings) -> None:
    training = Training(settings)
    scheduler = lr_scheduler.StepLR(training.optimizer, 30)
    training.step(100, lambda step: scheduler.step())
    (found,) = training.found(ScheduleSeen)
    assert (found.scheduler, found.optimizer, found.calls, found.steps) == ("StepLR", "SGD", 100, 100)
    assert (found.rate, found.highest, round(found.last, 6), found.ended) == (0.1, 0.1, 1e-4, True)
    assert found.made is not None and found.made.text == "scheduler = lr_scheduler.StepLR(training.optimizer, 30)"
    assert found.stepped is not None and "scheduler.step()" in found.stepped.text
    assert found.optimizer_made is not None and "lr=0.1" in found.optimizer_made.text


def test_the_length_of_a_schedule_and_the_rate_that_it_scales() -> None:
    training = Training()
    lr_scheduler.OneCycleLR(training.optimizer, 0.5, epochs=4, steps_per_epoch=10)
    lr_scheduler.CosineAnnealingLR(training.optimizer, T_max=7)
    lr_scheduler.LambdaLR(training.optimizer, lambda step: step + 1.0)
    found = [(one.scheduler, one.length, round(one.base, 6)) for one in training.found(ScheduleSeen)]
    assert found == [("OneCycleLR", 40, 0.02), ("CosineAnnealingLR", 7, 0.02), ("LambdaLR", 0, 0.02)]


def _with_warm_up(step: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
    return min(1.0, step / num_warmup_steps, num_training_steps - step)


def test_the_warm_up_that_a_schedule_was_made_for() -> None:
    training = Training()
    factor = partial(_with_warm_up, num_warmup_steps=500, num_training_steps=60)
    lr_scheduler.LambdaLR(training.optimizer, factor)
    lr_scheduler.LambdaLR(training.optimizer, lambda step: 1.0)
    found = [(one.warmup, one.planned, one.warmup_given) for one in training.found(ScheduleSeen)]
    assert found == [(500, 60, None), (0, 0, None)]


def test_a_schedule_that_sets_its_first_rate_is_not_resumed() -> None:
    """OneCycleLR begins at another rate than that of the optimizer, which has no state."""
    training = Training()
    scheduler = lr_scheduler.OneCycleLR(training.optimizer, 0.5, total_steps=40)
    training.step(30, lambda step: scheduler.step())
    assert training.found(ScheduleRestarted) == []


def test_a_rate_that_has_fallen() -> None:
    training = Training()
    scheduler = lr_scheduler.ExponentialLR(training.optimizer, 0.8)
    training.step(120, lambda step: scheduler.step())
    (found,) = training.found(ScheduleSeen)
    assert found.low_since is not None and 30 <= found.low_since <= 33  # 0.8**31 is less than a thousandth


def test_schedulers_that_others_step() -> None:
    training = Training()
    parts: list[Any] = [lr_scheduler.LinearLR(training.optimizer, 0.1, total_iters=5)]
    parts.append(lr_scheduler.CosineAnnealingLR(training.optimizer, 40))
    both = lr_scheduler.SequentialLR(training.optimizer, parts, milestones=[5])
    chained = lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(training.optimizer, 1.0)])
    training.step(30, lambda step: (both.step(), chained.step()))
    found = training.found(ScheduleSeen)
    assert [one.calls for one in found] == [4, 26, 30]
    assert found[0].made is not None and "SequentialLR" in found[0].made.text


def configured(optimizer: Optimizer) -> dict[str, Any]:
    scheduler = lr_scheduler.StepLR(optimizer, 30)
    return {"optimizer": optimizer, "lr_scheduler": scheduler}


def test_the_line_that_hands_a_scheduler_to_a_library() -> None:
    """Only if no line of the script steps it."""
    training = Training()
    scheduler = configured(training.optimizer)["lr_scheduler"]
    advance = eval("lambda scheduler: scheduler.step()", {})  # no line of a file
    for _ in range(10):
        training.step(1)
        advance(scheduler)
    (found,) = training.found(ScheduleSeen)
    assert found.returned is not None and found.returned.text.startswith('return {"optimizer": optimizer, "lr_')
    training = Training()
    scheduler = configured(training.optimizer)["lr_scheduler"]
    training.step(10, lambda _: scheduler.step())
    (found,) = training.found(ScheduleSeen)
    assert found.calls == 10 and found.returned is None


def test_one_that_is_never_stepped() -> None:
    training = Training()
    unused = lr_scheduler.StepLR(training.optimizer, 30)
    training.step(60)
    (found,) = training.found(ScheduleSeen)
    assert (found.calls, found.steps, found.rate, found.last) == (0, 60, 0.1, 0.1) and unused.last_epoch == 0
    assert found.elsewhere  # other tests of this file step theirs


@UNUSED
@pytest.mark.parametrize("settings", [Settings(budget=None), Settings(budget=0.05)])
def test_a_scheduler_whose_optimizer_was_made_anew(settings: Settings) -> None:
    training = Training(settings)
    scheduler = lr_scheduler.StepLR(training.optimizer, 10)
    training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=0.01)
    training.step(60, lambda step: scheduler.step())
    (found,) = training.found(ScheduleOfOther)
    assert (found.optimizer, found.calls, found.done, found.other, found.rate) == ("SGD", 60, 0, "AdamW", 0.01)
    assert found.steps >= 59 and found.other_made is not None and "AdamW" in found.other_made.text


def _copied_rate(training: Training) -> Callable[[int], None]:
    scheduler = lr_scheduler.StepLR(training.optimizer, 10)
    new = training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)

    def each(step: int) -> None:
        scheduler.step()
        new.param_groups[0]["lr"] = scheduler.get_last_lr()[0]

    return each


def _temperature(training: Training) -> Callable[[int], None]:
    scheduler = lr_scheduler.ExponentialLR(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=5.0), 0.9)
    return lambda step: scheduler.step()


def _one_of_two(training: Training) -> Callable[[int], None]:
    scheduler = lr_scheduler.StepLR(training.optimizer, 10)
    return lambda step: scheduler.step() if step % 3 == 2 else None


@UNUSED
@pytest.mark.parametrize("made", [_copied_rate, _temperature, _one_of_two])
def test_schedulers_that_are_used_as_meant(made: Callable[[Training], Callable[[int], None]]) -> None:
    training = Training()
    training.step(60, made(training))
    assert training.found(ScheduleOfOther) == []


def test_what_a_plateau_scheduler_is_given() -> None:
    training = Training()
    scheduler = ReduceLROnPlateau(training.optimizer, patience=2)
    accuracy = iter(torch.linspace(0.2, 0.9, 30))
    training.step(30, lambda step: scheduler.step(next(accuracy)))  # type: ignore[arg-type]
    (found,) = training.found(PlateauMetric)
    assert (found.mode, found.calls, found.best_at, round(found.first, 3)) == ("min", 30, 0, 0.2)
    assert found.last > 0.8 and found.rate == 0.1 and found.last_rate < 1e-6
    assert found.direction == "max" and found.made is not None and found.stepped is not None


def evaluate_and_step(scheduler: ReduceLROnPlateau, value: float) -> None:
    scheduler.step(value)


#: How a metric comes to the scheduler, as source; the direction of the metric; and the name by which it is looked up.
STEPS = {
    "Lightning": (
        """
def update(config, values):
    monitor_key = config["monitor"]
    monitor_val = values[monitor_key]
    call(config["scheduler"], monitor_val)

def call(scheduler, *args):
    with_value(scheduler, *args)

def with_value(scheduler, metric):
    scheduler.step(metric)

update({"scheduler": scheduler, "monitor": "val_r2"}, {"val_r2": value, "val_loss": -value})
""",
        *("max", "val_r2"),
    ),
    "the Trainer": (
        """
metric_to_check = "eval_loss"
metrics = {"eval_accuracy": -value, "eval_loss": value}
scheduler.step(metrics[metric_to_check])
""",
        *("min", "eval_loss"),
    ),
    "skorch": (
        """
class Callback:
    def __init__(self, monitor):
        self.monitor = monitor

    def on_epoch_end(self, history):
        score = history()
        scheduler.step(score)

Callback("valid_acc").on_epoch_end(lambda: value)
""",
        *("max", "valid_acc"),
    ),
    "a tensor": (
        """
monitor_key, monitor_val = "val/acc@1", torch.tensor(value)
scheduler.step(monitor_val)
""",
        *("max", "val/acc@1"),
    ),
    "a metric that is turned round": (
        """monitor, found = "neg_val_acc", value; scheduler.step(found)""",
        "?",
        "neg_val_acc",
    ),
    "two names": ("""monitor, metric = "val_acc", "val_loss"; scheduler.step(value)""", "", ""),
    "no name": ("scheduler.step(value)", "", ""),
}


@pytest.mark.parametrize("way", STEPS)
def test_the_name_by_which_a_library_looks_up_the_metric(way: str) -> None:
    source, direction, name = STEPS[way]
    training = Training()
    scheduler = ReduceLROnPlateau(training.optimizer, patience=2)
    values = iter(torch.linspace(0.2, 0.9, 8).tolist())
    code = compile(source, "<a library>", "exec")
    training.step(8, lambda step: exec(code, {"scheduler": scheduler, "value": next(values), "torch": torch}))
    (found,) = training.found(PlateauMetric)
    assert (found.calls, found.direction, found.name) == (8, direction, name)


def test_a_metric_that_the_script_hands_on() -> None:
    """A parameter has the direction of what calls give to it, and a key that of its value."""
    training = Training()
    scheduler = ReduceLROnPlateau(
        training.optimizer,
        mode="max",
    )
    val_loss = iter(torch.linspace(0.9, 0.2, 8).tolist())
    training.step(8, lambda step: evaluate_and_step(scheduler, next(val_loss)))
    (found,) = training.found(PlateauMetric)
    assert (found.direction, found.name) == ("min", "")
    assert found.mode_given is not None and found.mode_given.text == 'mode="max",'
    training, chosen = Training(), "val_accuracy"
    scheduler = ReduceLROnPlateau(training.optimizer)
    values = iter([{"val_accuracy": i / 10, "val_x": -1.0} for i in range(1, 9)])

    def step_with(found: dict[str, float], key: str) -> None:
        scheduler.step(found[key])

    training.step(8, lambda step: step_with(next(values), chosen))
    (found,) = training.found(PlateauMetric)
    assert (found.direction, found.name, found.mode_given) == ("max", "val_accuracy", None)


def _resumed(training: Training, first: bool, all_parts: bool = False) -> None:
    """Train, and go on from a checkpoint. `first`: the scheduler is made before the state is loaded."""

    def factor(step: int) -> float:
        return 0.9**step

    scheduler = lr_scheduler.LambdaLR(training.optimizer, factor)
    training.step(20, lambda step: scheduler.step())
    states = copy.deepcopy((training.optimizer.state_dict(), scheduler.state_dict()))
    training.optimizer = type(training.optimizer)(training.model.parameters(), lr=0.1)  # type: ignore[call-arg]
    if not first:
        training.optimizer.load_state_dict(states[0])
    again = lr_scheduler.LambdaLR(training.optimizer, factor)
    if first:
        training.optimizer.load_state_dict(states[0])
    if all_parts:
        again.load_state_dict(states[1])
    training.step(20, lambda step: again.step())


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_scheduler_that_begins_again(optimizer: type[Optimizer], first: bool) -> None:
    training = Training(optimizer=optimizer)
    _resumed(training, first)
    (found,) = training.found(ScheduleRestarted)
    assert found.loaded == pytest.approx(0.1 * 0.9**20) and found.begin == 0.1
    assert found.highest >= 0.09 - 1e-9 and found.done == (20 if optimizer is torch.optim.Adam else 0)


def test_a_scheduler_that_is_resumed() -> None:
    training = Training(optimizer=torch.optim.Adam)
    _resumed(training, first=True, all_parts=True)
    assert training.found(ScheduleRestarted) == []


def test_a_second_phase_is_no_restart() -> None:
    training = Training(optimizer=torch.optim.Adam)
    for _ in range(2):
        scheduler = lr_scheduler.LambdaLR(training.optimizer, lambda step: 0.9**step)
        training.step(10, lambda step, scheduler=scheduler: scheduler.step())  # type: ignore[misc]
    assert training.found(ScheduleRestarted) == []


def test_schedulers_behave_the_same_and_are_restored() -> None:
    context, methods = lr_scheduler._enable_get_lr_call, dict(vars(ReduceLROnPlateau))
    training = Training()
    scheduler = ReduceLROnPlateau(training.optimizer)
    for name, method in methods.items():
        if callable(method):
            assert inspect.signature(vars(ReduceLROnPlateau)[name]) == inspect.signature(method)
    assert pickle.loads(pickle.dumps(scheduler)).state_dict() == scheduler.state_dict()
    with pytest.raises(ValueError, match="mode best is unknown"):
        ReduceLROnPlateau(training.optimizer, mode="best")  # type: ignore[arg-type]
    kept = weakref.ref(scheduler), weakref.ref(training.optimizer)
    training.step(3)
    training.found(ScheduleSeen)
    assert lr_scheduler._enable_get_lr_call is context
    assert all(vars(ReduceLROnPlateau)[name] is method for name, method in methods.items())
    del scheduler, training
    gc.collect()
    assert [ref() for ref in kept] == [None, None]
