"""Steps that are not recorded: the script cannot observe our code in them, and nothing of ours fails or grows."""

from __future__ import annotations

import math
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile
from watching import Calls, Ops

from backprobe.observe.backward import node_count_history
from backprobe.observe.backward.calls import loss_value
from backprobe.observe.backward.node_count_history import NodeCountHistory
from backprobe.observe.events import Events
from backprobe.observe.forward.modules import ModuleWatch
from backprobe.observe.forward.write_inference import WrittenTensor, inferred_write
from backprobe.observe.forward.writes import ObservedMutation, WriteLog
from backprobe.observe.schedule import budget as budgets
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector
from backprobe.source import new_lines
from backprobe.source.frames import Frames
from backprobe.source.new_lines import SHOWS, FirstRuns
from backprobe.torch_internals import private


@pytest.fixture(autouse=True)
def nothing_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is recorded but the first three, and those that trouble asks for; none passes."""
    monkeypatch.setattr(budgets, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(budgets, "MAX_STEPS_BETWEEN_RECORDED", 10**9)
    monkeypatch.setattr(budgets, "UNRECORDED_STEP_FRACTION", math.inf)


class Profiled:
    """The names of the ops that torch's profiler records."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> None:
        self._profile = profile()
        self._profile.__enter__()

    def __exit__(self, *given: Any) -> None:
        self._profile.__exit__(*given)
        self.seen += [event.name for event in self._profile.events()]


def by_optimizer(model: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    return step


def by_hand(model: nn.Module) -> Callable[[], None]:
    """Gradients that are there, and zero: whether a step is over is asked of them."""

    def step() -> None:
        (model(torch.ones(2, 4)).square().mean() * 2).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 1e-3 * p.grad  # type: ignore[operator]
                p.grad.zero_()  # type: ignore[union-attr]

    return step


def seen_by(look: Any, make: Callable[[nn.Module], Callable[[], None]], recorded: bool, budget: float | None) -> Any:
    """Return what `look` observes in the tenth step of a run: watched under `budget`, or alone if it is None."""
    torch.manual_seed(0)
    step = make(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))
    session = Session(Collector(), Settings(budget=budget))
    if budget is not None:
        session.start()
    for i in range(10):
        if i == 8 and recorded:
            session.events.failure_found.emit(i)
        if i == 9:
            with look:
                step()
            assert budget is None or session.forward.recorder.recording is recorded
        else:
            step()
    session.stop()
    assert session.error is None, repr(session.error)
    return look.seen


def test_profilers_stay_off_after_a_nested_block() -> None:
    look = Profiled()
    with look:
        torch.ones(2).add(1)
        with private.hide_from_profiler():
            with private.hide_from_profiler():
                torch.ones(2).mul(2)
            torch.ones(2).sub(1)
        torch.ones(2).div(2)
    names = {name.partition("::")[2] for name in look.seen}
    assert {"add", "div"} <= names and not names & {"mul", "sub"}


@pytest.mark.parametrize("recorded", [False, True], ids=["unrecorded", "recorded"])
@pytest.mark.parametrize("make", [by_optimizer, by_hand])
@pytest.mark.parametrize("look", [Ops, Calls, Profiled])
def test_modes_and_profilers_of_the_script_get_the_same_ops(look: Any, make: Any, recorded: bool) -> None:
    alone = seen_by(look(), make, recorded, None)
    watched = seen_by(look(), make, recorded, 1e-9)
    assert alone == watched and alone


def test_a_loss_inside_a_transform_or_a_trace_is_not_read() -> None:
    read = []

    def function(x: torch.Tensor) -> torch.Tensor:
        loss = (x * x).sum()
        read.append(loss_value(loss))
        return loss

    assert torch.equal(torch.func.grad(function)(torch.ones(3)), torch.full((3,), 2.0))
    assert read == [None] and loss_value(torch.ones(())) == 1.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_computes_nothing_at_exit() -> None:
    """Pending values belong to the parent: torch may hang if the child computes with them."""
    session = Session(Collector(), Settings(budget=1e-9))
    told: list[str] = []
    session.events.about_to_write.add(lambda: told.append("flush"))
    session.start()
    session.leave()
    assert told == []
    again = Session(Collector(), Settings(budget=1e-9))
    again.events.about_to_write.add(lambda: told.append("flush"))
    again.start()
    again.stop()
    assert told


#: What of a lazy import was asked for.
TOUCHED: list[str] = []


class Proxy:
    """As a lazy import: it does what it likes when it is asked for anything."""

    @property
    def __class__(self) -> Any:
        TOUCHED.append("__class__")
        raise RuntimeError("touched")

    def __getattr__(self, name: str) -> Any:
        TOUCHED.append(name)
        raise RuntimeError("touched")


class Lazy(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        TOUCHED.append(name)
        raise RuntimeError("touched")


@pytest.mark.skipif(not SHOWS, reason="this Python does not show what it has adapted")
def test_lazy_modules_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = Lazy("lazy")
    lazy.__dict__.update(__file__=__file__, held=Proxy())
    monkeypatch.setitem(sys.modules, "a lazy module", lazy)
    monkeypatch.setitem(sys.modules, "no module", Proxy())  # type: ignore[arg-type]
    frames = Frames((str(Path(__file__).parent),))
    frames.is_user(by_hand.__code__)
    TOUCHED.clear()
    FirstRuns(frames).look()
    assert TOUCHED == []


def test_a_failed_scan_for_new_lines_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: FirstRuns) -> Any:
        raise KeyError("ours")

    monkeypatch.setattr(FirstRuns, "look", fails)
    session = Session(Collector(), Settings(budget=1e-9))
    session.start()
    step = by_optimizer(nn.Linear(4, 1))
    for _ in range(10):
        step()
    session.stop()
    assert isinstance(session.error, KeyError) and session.schedule.steps.index == 10


def test_remembered_counts_and_lines_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    history, now = NodeCountHistory(), 0
    monkeypatch.setattr(node_count_history, "MAX_REMEMBERED_COUNTS", 10)
    monkeypatch.setattr(node_count_history.private, "next_sequence_nr", lambda: now)
    for i in range(3000):
        now += i
        history.begin_call()
        history.end_call()
    assert len(history.known_counts) == 10 and len(history.call_ends) <= 2 * node_count_history.MIN_REMEMBERED_CALLS
    monkeypatch.setattr(new_lines, "MAX_CODE_OBJECTS", 30)
    frames = Frames((str(tmp_path),))
    runs = FirstRuns(frames)
    for i in range(100):
        names: dict[str, Any] = {}
        exec(compile(f"def f{i}(): return {i}", str(tmp_path / "made.py"), "exec"), names)
        frames.is_user(names[f"f{i}"].__code__)
        runs.look()
    assert len(runs._codes) <= 30


@pytest.mark.parametrize(
    ("lines", "name", "written"),
    [
        (["counter += 1", "h.add_(1)"], "", "h.add_(1)"),
        (["counter += 1", "x[0] = 1"], "", "x[0] = 1"),
        (["counter += 1", "h += 1"], "", "h += 1"),
        (["h.add_(1)", "z += 1"], "z", "z += 1"),
        (["counter += 1"], "", None),
        (["counter += 1"], "counter", "counter += 1"),
    ],
)
def test_a_line_that_counts_is_not_taken_for_one_that_writes(
    tmp_path: Path, lines: list[str], name: str, written: str | None
) -> None:
    path = tmp_path / "loop.py"
    path.write_text("counter = 0\nh = x = z = f()\n" + "\n".join(lines) + "\n")
    code = compile(path.read_text(), str(path), "exec")
    frames = Frames((str(tmp_path),))
    frames.is_user(code)
    spots = {line: (code, begin) for begin, _, line in reversed(list(code.co_lines())) if line and line > 2}
    seen = ObservedMutation("self", "Mul", (3,), 0, 1, None, None)
    log = WriteLog(frames, ModuleWatch(frames, Events()))
    tensor = WrittenTensor((name,) if name else ())
    found = inferred_write(seen, tensor, 0, None, [spots[line] for line in sorted(spots)], log, frames)
    site = frames.site(found.spot) if found is not None else None
    assert (site.text if site is not None else None) == written
