"""Signal handlers that run during our code: their errors reach the script, an interrupted step has no findings."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from backprobe import trace
from backprobe.observe.forward.modules import ModuleWatch
from backprobe.observe.forward.oplog import OpLog
from backprobe.observe.forward.values import ForwardValues
from backprobe.observe.schedule import budget as budgets
from backprobe.observe.schedule import new_line_scanner
from backprobe.observe.schedule.steps import StepWatch
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.source.new_lines import FirstRuns
from backprobe.source.tracebacks import of_handler

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signals")


class TimeUp(Exception):
    pass


class Limit:
    """A handler that is an object with a method."""

    def __call__(self, number: int, _: Any) -> None:
        self.over(number)

    def over(self, *_: Any) -> None:
        raise TimeUp("the time is up")


def rebinds(number: int, frame: Any) -> None:
    frame = None
    raise TimeUp(frame)


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, Limit())
    yield
    signal.signal(signal.SIGUSR1, before)


def training() -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(2, 4)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def comes_at(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, armed: list[bool]) -> None:
    """The signal comes in the midst of a call of `method`, where it is armed: once."""
    real = getattr(owner, method)

    @functools.wraps(real)
    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if armed:
            armed.clear()
            signal.raise_signal(signal.SIGUSR1)
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, method, interrupted)


@pytest.mark.parametrize("how", [Limit(), Limit().over, rebinds, functools.partial(lambda _, *args: 1 / 0, 0)])
def test_errors_of_a_handler_are_distinguished_from_ours(how: Any) -> None:
    signal.signal(signal.SIGUSR1, how)
    with pytest.raises((TimeUp, ZeroDivisionError)) as raised:
        signal.raise_signal(signal.SIGUSR1)
    assert of_handler(raised.value)


def test_a_frame_passed_as_an_argument_is_no_signal() -> None:
    def looks(frame: Any, number: int) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError) as raised:
        looks(sys._getframe(), int(signal.SIGUSR1))
    assert not of_handler(raised.value)


@pytest.mark.parametrize(
    ("owner", "method", "budget"),
    [
        (FirstRuns, "look", 1e-9),
        (StepWatch, "_begin_optimizer_step", None),
        (StepWatch, "finish", None),
        (ForwardValues, "graph_op", None),
        (ForwardValues, "flush", None),
        (ModuleWatch, "new_step", None),
        (Collector, "backward", None),
    ],
)
def test_an_error_of_a_handler_during_our_code_reaches_the_script(
    owner: type, method: str, budget: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (new_line_scanner, "SCAN_INTERVAL_RATIO", 0),
        (budgets, "FREE_SECONDS", 0.0),
        (budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", math.inf)
    armed: list[bool] = []
    comes_at(monkeypatch, owner, method, armed)
    sink = Collector()
    session, step = Session(sink, Settings(budget=budget)), training()
    session.start()
    for _ in range(4):
        step()
    armed.append(True)
    caught = 0
    for _ in range(8):
        try:
            step()
        except TimeUp:
            caught += 1
    session.stop()
    assert caught == 1 and session.error is None
    assert session.schedule.steps.index >= 10


def test_an_interrupted_log_entry_does_not_shift_others() -> None:
    log = OpLog()
    entry: Any = ("code", 1, "op", None, None)
    log.ends += [3, 5]
    log.entries += [entry, entry]
    log.ends.append(7)  # and the entry did not come to be noted
    log.ends.append(9)
    log.entries.append(("code", 2, "other", None, None))
    assert log.slice(0, 8) == ([], [])
    log.ends.append(11)
    log.entries.append(entry)
    assert log.slice(9, 10) == ([11], [entry]) and log.is_unknown(12)
    (unseen,) = log.unseen()
    assert unseen.count == 4 and "interrupted" in unseen.note


class Stops(torch.autograd.Function):
    """A function whose backward raises the signal `number`."""

    number = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        signal.raise_signal(Stops.number)
        return grad


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), ("SIGUSR1", TimeUp)])
@pytest.mark.parametrize("before", [0, 6])
def test_an_interrupted_backward_is_no_error_of_a_node(number: Any, error: Any, before: int) -> None:
    Stops.number = getattr(signal, number) if isinstance(number, str) else number
    step, first, last = training(), nn.Linear(4, 4), nn.Linear(4, 1)
    with trace() as seen:
        for _ in range(before):
            step()
        with pytest.raises(error):
            last(Stops.apply(first(torch.ones(2, 4)))).mean().backward()  # type: ignore[no-untyped-call]
    assert [finding.kind for finding in seen.findings] == []
    raised = list(seen.backwards)[-1].raised
    assert raised is not None and (raised.type, raised.node) == (error.__name__, None)


class Part(nn.Module):
    """Its forward ends with an error, where there is one."""

    error: BaseException | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.error is not None:
            raise self.error
        return x.tanh()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ValueError()])
def test_an_interrupted_module_call_has_ended(error: BaseException) -> None:
    """Of an error that is no ``Exception`` torch tells its hooks nothing."""
    part, limit = Part(), sys.getrecursionlimit()
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), part), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    collector = Collector()
    session = Session(collector, Settings())
    session.start()
    for part.error in (None, None, error, None, None):
        with contextlib.suppress(type(error)):
            step()
    assert session.forward.modules.stack == [] and sys.getrecursionlimit() == limit
    for _ in range(2):
        step()
    session.stop()
    steps = list(collector.trace(session).steps)
    before, after = ([run.module for call in steps[at].backwards for run in call.nodes] for at in (1, -1))
    assert session.error is None and before == after and "1.0" in after
    calls = [[(call.path, call.depth) for call in steps[at].module_calls] for at in (1, -1)]
    assert calls[0] == calls[1] and len(calls[0]) == 6


SCRIPT = """
import signal, torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)

def hook(grad):
    global steps
    steps += 1
    if steps == 20:
        signal.raise_signal(signal.SIGINT)

steps = 0
for _ in range(40):
    optimizer.zero_grad()
    hidden = model[1](model[0](torch.ones(2, 4)))
    hidden.register_hook(hook)
    model[2](hidden).square().mean().backward()
    optimizer.step()
"""


def test_an_interrupted_run_reports_only_the_interruption(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "backprobe", "run", "--out", str(tmp_path / "run"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGINT or done.returncode == 130
    said = " ".join(done.stderr.split())
    assert "no findings" in said and "the script ended with KeyboardInterrupt" in said, done.stderr
    assert "raised KeyboardInterrupt" not in done.stderr
