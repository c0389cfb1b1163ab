"""Stopping a run on an alarm: it is interrupted once, and still reports its findings."""

from __future__ import annotations

import _thread
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from backprobe.findings.levels.alarms import Alarm
from backprobe.observe.processes import rendezvous, signals, stopping
from backprobe.observe.processes.child_config import ChildConfig
from backprobe.observe.processes.identity import Identity
from backprobe.observe.schedule.settings import Settings

ALARM = Alarm(
    kind="update-too-large", name="fc.weight", quantity="update_ratio", step=3, since=1, value=0.5, before=0.01
)


def told(folder: Path, first: int, ticks: int | None) -> ChildConfig:
    folder.mkdir(exist_ok=True)
    return ChildConfig(folder, Settings(), (), 0, first=first, first_ticks=ticks)


def test_the_first_of_several_alarms_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[tuple[int, int | None]] = []
    interrupted: list[bool] = []
    monkeypatch.setattr(stopping, "interrupt", lambda pid, ticks: sent.append((pid, ticks)))
    monkeypatch.setattr(_thread, "interrupt_main", lambda: interrupted.append(True))
    for rank in (0, 1, 0):
        stopping.stop_for(ALARM, rank, told(tmp_path / "one", 99_999_999, 5))
    assert sent == [(99_999_999, 5)] * (os.name == "posix") and interrupted == [True]
    assert capsys.readouterr().err.count("the run is stopped for update-too-large") == 1
    stopping.stop_for(ALARM, None, told(tmp_path / "other", os.getpid(), 5))
    assert len(interrupted) == 2 and len(sent) == (os.name == "posix")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_only_the_process_that_is_meant_is_interrupted(tmp_path: Path) -> None:
    """A number in a file may be anything, and that of a process that is gone may be another's."""
    code = "import time\nprint('there', flush=True)\ntime.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None and child.stdout.readline() == b"there\n"
        ticks = signals.start_ticks(child.pid)
        assert ticks is not None
        for pid, at in ((child.pid, ticks + 1), (child.pid, None), (-child.pid, ticks), (-1, ticks), (0, ticks)):
            assert not signals.interrupt(pid, at)
        assert child.poll() is None
        assert signals.interrupt(child.pid, ticks)
        assert child.wait() == -signal.SIGINT
        assert not signals.interrupt(child.pid, ticks)


@pytest.mark.skipif(os.name != "posix", reason="modes of folders")
def test_a_rank_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    me = Identity(rank=0, world=2, job="a job")
    made = rendezvous.temporary(me)
    assert made.stat().st_mode & 0o777 == 0o700 and rendezvous.temporary(me) == made
    made.chmod(0o755)
    with pytest.raises(PermissionError, match="is not a folder of this user's alone"):
        rendezvous.temporary(me)
    made.rmdir()
    (tmp_path / "mine").mkdir(mode=0o700)
    made.symlink_to(tmp_path / "mine")
    with pytest.raises(PermissionError, match="is not a folder of this user's alone"):
        rendezvous.temporary(me)


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
    assert "in 3 steps" in " ".join(done.stderr.split()) and done.stderr.count("KeyboardInterrupt") >= 1
