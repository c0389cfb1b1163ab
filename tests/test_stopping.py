"""A run that is stopped is interrupted once: what it has found is told all the same."""

from __future__ import annotations

import _thread
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from backprobe.findings.alarms import Alarm
from backprobe.observe.processes import stopping

ALARM = Alarm(
    kind="update-too-large", name="fc.weight", quantity="update_ratio", step=3, since=1, value=0.5, before=0.01
)


def test_the_first_of_several_alarms_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed: list[tuple[int, int]] = []
    interrupted: list[bool] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    monkeypatch.setattr(_thread, "interrupt_main", lambda: interrupted.append(True))
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    for rank in (0, 1, 0):
        stopping.stop_for(ALARM, rank, tmp_path / "one", 99_999_999)
    assert killed == [(99_999_999, signal.SIGINT)] * (os.name == "posix") and interrupted == [True]
    assert capsys.readouterr().err.count("the run is stopped for update-too-large") == 1
    stopping.stop_for(ALARM, 0, tmp_path / "other", 99_999_999)
    assert len(interrupted) == 2
    for _ in range(2):  # no folder that all of them know
        stopping.stop_for(ALARM, None, None, os.getpid())
    assert len(interrupted) == 4


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_second_interruption_while_watching_ends_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
            import os, signal
            import torch
            from backprobe.observe.session import Session
            stop = Session.stop

            def again(self):
                os.kill(os.getpid(), signal.SIGINT)
                stop(self)

            Session.stop = again
            model = torch.nn.Linear(2, 1)
            for step in range(3):
                (model(torch.ones(1, 2)) * (0.0 if step < 2 else float("nan"))).sum().backward()
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10**9):
                pass
        """)
    )
    command = [sys.executable, "-m", "backprobe", "run", "--no-keep", "--findings", "found.json", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == -signal.SIGINT, done.stderr
    assert [one["kind"] for one in json.loads((tmp_path / "found.json").read_text())["findings"]] == [
        "nonfinite-forward"
    ]
    assert "backprobe: 3 steps" in done.stderr and done.stderr.count("KeyboardInterrupt") >= 1
