"""A run on disk: reading returns what was written, a killed run opens, wrong folders give one clear error."""

from __future__ import annotations

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import backprobe
from backprobe import BackprobeError
from backprobe.graphs.packed_calls import pack, unpack
from backprobe.records import BadOp, BadValues, GradStat, Node, NodeRun, Site, TensorStat
from backprobe.store.codec import from_plain, to_plain
from backprobe.store.reader import open_run
from backprobe.store.writer import Writer


def traced(rounds=5):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with backprobe.trace(model) as trace:
        for i in range(rounds):
            optimizer.zero_grad()
            (model(torch.randn(2, 3)) * (float("nan") if i == 4 else 1)).sum().backward()
            optimizer.step()
    return trace


def without_seconds(runs):
    return [dataclasses.replace(r, seconds=None) for r in runs]


def test_reading_gives_what_was_written(tmp_path: Path) -> None:
    trace = traced()
    assert [f.kind for f in trace.findings] == ["nonfinite-forward"]
    read = backprobe.load_run(trace.save(tmp_path / "run"))
    assert list(read.findings) == list(trace.findings)
    assert list(read.parameters) == list(trace.parameters)
    assert len(read.steps) == len(trace.steps) == 5
    for a, b in zip(read.steps, trace.steps, strict=True):
        assert repr(a.record) == repr(b.record)  # NaN is not equal to itself
        assert a.module_calls == b.module_calls
        for x, y in zip(a.backwards, b.backwards, strict=True):
            assert repr(without_seconds(x.nodes)) == repr(without_seconds(y.nodes))
            assert repr(dataclasses.replace(x, nodes=())) == repr(dataclasses.replace(y, nodes=()))


def test_records_go_through_json() -> None:
    op = BadOp(
        1, 2, "log", Site("a.py", 3, "f", "x.log()"), None, 1, BadValues(0, 2, 9, (3, 3), ((0, 1),)),
        (TensorStat("x", (3, 3), "float32", None, 4), TensorStat("", (), "int64")),
    )  # fmt: skip
    assert from_plain(BadOp, to_plain(op)) == op


stats = st.none() | st.builds(
    GradStat,
    st.just((2, 3)),
    st.just("float32"),
    st.none() | st.floats(0, 1e30),
    st.none() | st.just(BadValues(1, 0, 6, (2, 3))),
)


@given(st.lists(st.tuples(stats, stats), min_size=1, max_size=6))
def test_packing_loses_nothing(rows) -> None:
    """A chain of nodes with any gradients in and out."""
    last = len(rows) - 1
    runs = [
        NodeRun(
            Node(i, f"Op{i}", 10 - i, "m", 1, None, "op", None, ((i + 1, 0),) if i < last else (None,)),
            i,
            0.5,
            (came,) if came is not None else (),
            (gave,),
        )
        for i, (came, gave) in enumerate(rows)
    ]
    again = unpack(pack(runs))
    for a, b in zip(again, runs, strict=True):
        assert a.grad_inputs == b.grad_inputs
        if b.grad_outputs:
            assert a.grad_outputs == b.grad_outputs
        assert (a.order, a.seconds, a.node) == (b.order, b.seconds, b.node)


KILLED = """
import torch, time
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
o = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(100000):
    o.zero_grad(); m(torch.randn(4, 3)).sum().backward(); o.step()
    print(i, flush=True)
"""


def test_a_killed_run_opens_with_every_finished_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KILLED)
    command = [sys.executable, "-m", "backprobe", "run", "--out", "kept", "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    done = 0
    for line in process.stdout:
        done = int(line)
        if done >= 60:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait(600)
    process.stdout.close()
    trace = open_run(tmp_path / "kept")
    # The step that was printed last is over when the next one begins.
    assert [s.index for s in trace.steps][: done - 1] == list(range(done - 1))
    assert trace.steps[done - 2].backwards[0].nodes[0].order == 0
    assert {p.name for p in trace.parameters} == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert trace.findings == []
    shown = subprocess.run(
        [sys.executable, "-m", "backprobe", "show", "kept"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert shown.returncode == 0
    assert "the run was cut off" in " ".join(shown.stdout.split())


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BackprobeError, match=r"no run in .*run.sqlite is not there"):
        open_run(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(BackprobeError, match="damaged or not a run"):
        open_run(tmp_path)
    traced(1).save(tmp_path / "good")
    with pytest.raises(BackprobeError, match="is not empty"):
        Writer(tmp_path / "good", {})


def test_a_damaged_run_is_one_line(tmp_path: Path) -> None:
    run = traced(3).save(tmp_path / "run")
    db = sqlite3.connect(run / "run.sqlite")
    db.execute("drop table steps")
    db.commit()
    db.close()
    with pytest.raises(BackprobeError, match="is damaged"):
        open_run(run)


def test_disk_use_is_bounded_and_findings_stay(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    from backprobe.observe.session import Session, Settings
    from backprobe.observe.sinks.disk import DiskSink

    class Sink:
        def __init__(self, keep):
            self.backward, self.step = keep.backward, keep.step

    keep = DiskSink(Writer(tmp_path / "run", {"started": time.time()}, limit=300_000))
    session = Session(Sink(keep), Settings())
    session.start()
    for i in range(400):
        optimizer.zero_grad()
        (model(torch.randn(2, 8)) * (float("inf") if i == 200 else 1)).sum().backward()
        if i != 200:
            optimizer.step()
    session.stop()
    keep.writer.close(session.facts(), [])
    size = sum(f.stat().st_size for f in (tmp_path / "run").iterdir())
    assert size < 1_500_000
    trace = open_run(tmp_path / "run")
    assert trace.info["thinned"] > 100
    assert [s.index for s in trace.steps] == list(range(399))  # step 200 is two backward calls
    kept = [s.index for s in trace.steps if len(s.backwards)]
    assert kept[:3] == [0, 1, 2]
    assert kept[-1] == 398
    assert 200 in kept
