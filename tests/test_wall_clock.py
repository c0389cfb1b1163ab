"""Durations if the system clock is set back while a script runs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch

import backprobe
from backprobe.observe import wall_clock
from backprobe.observe.trackers.collective_wait import CollectiveWaitWatcher
from backprobe.records import RankSeen, RankWait
from backprobe.source.frames import Frames
from backprobe.traces.collective_desync import Held, said

ROOT = Path(backprobe.__file__).parent
#: What may read the system clock: moments that are written down, and those that come from other processes.
MOMENTS = {
    *("observe/wall_clock.py", "observe/processes/rendezvous.py", "integrations/watching.py", "store/writer.py"),
    *(
        "store/job.py",
        "tracking/mlflow.py",
        "tracking/tensorboard.py",
        "commands/top.py",
        "traces/collective_desync.py",
    ),
}


@pytest.fixture
def set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the system clock finds it an hour before the last."""
    hours = iter(range(10_000))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600.0 * next(hours))


@pytest.mark.usefixtures("set_back")
def test_durations_are_not_negative() -> None:
    before = wall_clock.now()
    w = torch.ones(3, requires_grad=True)
    with backprobe.trace() as trace:
        for _ in range(3):
            (w * 2).sum().backward()
    assert before <= trace.info["started"] <= trace.info["ended"] <= wall_clock.now()
    assert 0.0 <= trace.info["seconds"] < 600.0
    assert trace.info["seconds"] == pytest.approx(trace.info["ended"] - trace.info["started"], abs=1.0)


@pytest.mark.usefixtures("set_back")
def test_the_wait_of_a_rank_is_not_negative() -> None:
    waiting = CollectiveWaitWatcher(Frames((str(Path(__file__).parent),)), say=False)
    for _ in range(3):
        waiting.inspect()
    moments = [at for at, _ in waiting.trail()]
    assert moments and moments == sorted(moments)
    assert all(abs(at - wall_clock.now()) < 600.0 for at in moments)
    wait = RankWait("barrier", None, wall_clock.now() - 8.0, 8.0, "never")
    text = said(Held(((RankSeen(0, 1, (wait,)), wait),), ()), wall_clock.now())
    assert re.match(r"rank 0 has waited (8|9|1\d) s in barrier", text)


def test_the_system_clock_is_read_for_moments_only() -> None:
    files = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if "time.time()" in path.read_text()}
    assert files == MOMENTS
