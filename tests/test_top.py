"""``backprobe top``: reading a run in progress, the layout, and the end."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from handmade import looked, traced
from learning import OPTIMIZER, STEP
from rich.console import Console

import backprobe
from backprobe import Trace
from backprobe.commands import main
from backprobe.commands.top import Look
from backprobe.records import Measured, Step
from backprobe.store.job import going_on
from backprobe.store.reader import open_run
from backprobe.store.writer import Writer
from backprobe.view.outliers import Levels
from backprobe.view.spark import BLOCKS, SIGNS, spark
from backprobe.view.top import Frame, Said, Watch, drawn, duration

NAMES = ("update_ratio|a.weight", "stable_rank|a.weight", "update_ratio|a.bias", "activation_rms|a", "activation_rms|b")


def look(step: int, a: float, b: float, ratio: float = 0.01) -> Measured:
    return Measured(step, NAMES, (ratio, 2.0, 7.0, a, b))


def lines(frame: Frame, width: int, plain: bool = False, height: int | None = None) -> list[str]:
    out = Console(
        file=io.StringIO(), width=width, height=height or 100, force_terminal=False, markup=False, emoji=False
    )
    with out.capture() as text:
        out.print(drawn(frame, width, plain, height))
    return [line.rstrip() for line in text.get().splitlines()]


def test_a_curve_in_one_line() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7], 8) == BLOCKS
    assert spark([1, 1, 3, 3], 2, SIGNS) == "_#"
    assert spark([2.0, 2.0], 5) == BLOCKS[0] * 2
    assert spark([1.0, math.inf, math.nan, 2.0], 9, SIGNS) == "_!#"
    assert spark([], 5) == spark([math.nan], 5) == ""
    assert spark([1e-4, 1e-2, 1.0], 3, SIGNS) == "_=#"  # logarithmic: the middle is in the middle
    assert spark([-1.0, 0.0, 100.0], 3, SIGNS) == "__#"


def test_what_stands_out() -> None:
    levels = Levels()
    for i in range(20):
        levels.add(look(10 + 10 * i, 5.0, 0.1 if i < 5 else 0.5, 0.01 + 0.001 * i))
    found = {(one.quantity, one.name): one for one in levels.standing}
    assert list(found) == [("update_ratio", "a.weight"), ("activation_rms", "a"), ("activation_rms", "b")]
    grown = found["activation_rms", "b"]
    assert grown.first == 0.1 and grown.growth == pytest.approx(5) and grown.curve[-1] == 0.5
    assert found["activation_rms", "a"].growth == 1
    assert levels.looks == 20 and levels.step == 200 and levels.alarms == []


def test_nonfinite_values_are_highlighted_first() -> None:
    levels = Levels()
    levels.add(Measured(10, ("activation_rms|a", "activation_rms|b", "headroom|a"), (3.0, math.nan, 0.0)))
    assert [(one.quantity, one.name) for one in levels.standing] == [("activation_rms", "b"), ("headroom", "a")]


def test_many_looks_are_thinned_and_the_first_stays() -> None:
    levels = Levels()
    for i in range(1000):
        levels.add(look(i, float(i), 1.0))
    (curve,) = (one.curve for one in levels.standing if one.name == "a" and one.quantity == "activation_rms")
    assert 60 <= len(curve) <= 121 and curve[0] == 0 and curve[-1] > 980
    assert list(curve) == sorted(curve)


@pytest.mark.parametrize(("seconds", "text"), [(3, "3 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def alarming() -> Trace:
    curves = {"update_ratio|net.blocks.10.attention.projection.weight": [0.01] * 4 + [0.2] * 8, "lr|Adam": [3e-4] * 12}
    return looked(curves, traced(STEP, seen=[OPTIMIZER]))


def test_an_unrequested_alarm_is_shown_with_the_optimizer() -> None:
    frame = Watch().frame(alarming(), "run", 0.0)
    (told,) = frame.told
    assert told.kind == "update-too-large" and told.where == "optimizer  train.py:6 in step" and not told.number
    assert told.text == (
        "update / weight of net.blocks.10.attention.projection.weight is 0.2 in step 80, held against 0.1; "
        "since step 40"
    )
    assert (frame.lr, frame.looks, frame.looked, frame.step) == ("0.0003", 12, 110, 110)


def test_a_requested_alarm_is_shown_once_as_a_finding() -> None:
    curves = {"update_ratio|a.weight": [0.01] * 4 + [0.2] * 8}
    frame = Watch().frame(looked(curves, traced(STEP, seen=[OPTIMIZER], ask="levels")), "run", 0.0)
    assert [(told.number, told.kind) for told in frame.told] == [(1, "update-too-large")]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("plain", [False, True])
def test_a_frame_fits_its_width(width: int, plain: bool) -> None:
    told = [Said("update-too-large", "warning", "word " * 60, "optimizer  " + "path/" * 40 + "train.py:6", 1)] * 9
    ranks = [(f"rank {i}", "1,000", "0.5", "waits in all_reduce at " + "folder/" * 20) for i in range(40)]
    frame = Watch().frame(alarming(), "run", 0.0)
    many = replace(frame, told=told, ranks=ranks, losses=[1.0, math.inf, 0.5], norms=[1e-9, 1.0])
    text = lines(many, width, plain)
    assert max(map(len, text)) <= width
    if plain:
        "\n".join(text).encode("ascii")
    joined = "\n".join(text)
    assert "and 24 more" in joined and "update-too-large" in joined and "projection.weight" in joined
    for height in (24, 40):
        short = lines(many, width, plain, height)
        assert len(short) <= height, short
        assert "Layers that stand out" in "\n".join(short) and "more findings: backprobe show" in "\n".join(short)


def test_an_empty_screen_says_how_to_measure_layers() -> None:
    text = "\n".join(lines(Watch().frame(Trace(info={"script": "train.py", "started": 0.0}), "run", 65.0), 80))
    assert "train.py" in text and "no step yet" in text and "backprobe run --layer-stats 10" in " ".join(text.split())


def write_steps(writer: Writer, steps: range) -> None:
    for i in steps:
        writer.step(Step(i, 0.5, 10.0 - i, (), watching=0.1), 0, tuple)
        if i % 10 == 0:
            writer.measured(look(i, 1.0 + i, 2.0))
            writer.commit()


def info(folder: Path) -> dict[str, object]:
    return {"script": "train.py", "folder": str(folder), "started": time.time(), "pid": os.getpid(), "machine": ""}


def test_incremental_reading_gives_the_same_screen(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run", info(tmp_path))
    live = Look(tmp_path / "run", None)
    assert live().step is None
    write_steps(writer, range(35))
    first = live()
    assert (first.step, first.losses[-1], first.looks, first.looked) == (34, -24.0, 4, 30)
    assert first.rate == pytest.approx(2.0)
    write_steps(writer, range(35, 52))
    second, fresh = live(), Look(tmp_path / "run", None)()
    assert second == fresh and second.step == 51 and second.looks == 6 and len(second.losses) == 52


def test_statistics_are_there_before_the_next_step_is_over(tmp_path: Path) -> None:
    """Steps may pass without a record for long."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "model = torch.nn.Linear(3, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for i in range(12):\n"
        "    model(torch.randn(2, 3)).square().mean().backward()\n"
        "    optimizer.step()\n"
        "model(torch.randn(2, 3)).square().mean().backward()\n"
        "print('here', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    command = [
        *(sys.executable, "-m", "backprobe", "run", "--quiet", "--layer-stats", "10"),
        "--out",
        "run",
        "train.py",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        assert going_on(tmp_path / "run")
        frame = Look(tmp_path / "run", None)()
        assert frame.live and frame.state.startswith("running for") and frame.looks == 2 and frame.looked == 10
        assert frame.watching.startswith("overhead ")
        assert {one.quantity for one in frame.standing} >= {"update_ratio", "activation_rms"}
    finally:
        process.communicate("\n", timeout=600)
    assert process.returncode == 0 and not going_on(tmp_path / "run")
    frame = Look(tmp_path / "run", None)()
    assert not frame.live and frame.state.startswith("ended after") and frame.step == 12


def test_the_run_that_goes_on_is_taken_before_one_that_ended_later(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    import platform

    runs = Path("backprobe-runs")
    writer = Writer(runs / "going", {**info(tmp_path), "machine": platform.node()})
    write_steps(writer, range(3))
    ended = Writer(runs / "ended", info(tmp_path))
    write_steps(ended, range(5))
    ended.close(open_run(runs / "going").facts, [])
    os.utime(runs / "ended" / "run.sqlite", (time.time() + 60,) * 2)
    assert main(["top"]) == 0
    assert "going" in capsys.readouterr().out.splitlines()[0]
    writer.close(open_run(runs / "going").facts, [])
    os.utime(runs / "going" / "run.sqlite", (time.time() - 60,) * 2)
    assert main(["top", "--once"]) == 0
    out = capsys.readouterr().out
    assert "ended" in out.splitlines()[0] and "step 4" in out
    assert "\x1b" not in out


def test_no_run_is_one_line(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["top"]) == 2
    assert capsys.readouterr().err == "backprobe: no runs in backprobe-runs/ to show: name the folder of one\n"


def test_it_needs_no_torch(tmp_path) -> None:
    write_steps(Writer(tmp_path / "run", info(tmp_path)), range(3))
    text = (
        "import sys; sys.modules['torch'] = None\n"
        "from backprobe.commands import main\n"
        f"sys.exit(main(['top', {json.dumps(str(tmp_path / 'run'))}]))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "step 2" in done.stdout, done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a terminal of this kind")
@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_in_a_terminal_it_goes_on_until_a_key_ends_it(tmp_path, key) -> None:
    import pty
    import select

    writer = Writer(tmp_path / "run", info(tmp_path))
    write_steps(writer, range(3))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="90", LINES="30")
        os.execv(sys.executable, [sys.executable, "-m", "backprobe", "top", str(tmp_path / "run")])
    seen = b""
    end = time.monotonic() + 600

    def until(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 65536)

    until(b"step 2")
    write_steps(writer, range(3, 6))
    until(b"step 5")  # what is new is drawn
    os.write(terminal, key)
    while True:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:  # it is gone
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("command", ["top --once", "show", "runs", "explain"])
def test_a_reader_that_has_gone_is_no_error(tmp_path: Path, command: str) -> None:
    """As with ``| head -1``."""
    model = torch.nn.Linear(2, 1)
    with backprobe.trace(model) as trace:
        model(torch.ones(1, 2)).sum().backward()
    trace.save(tmp_path / "backprobe-runs" / "kept")
    read, write = os.pipe()
    os.close(read)
    said = subprocess.run(
        [sys.executable, "-m", "backprobe", *command.split()],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (said.returncode, said.stderr) == (1, "")
