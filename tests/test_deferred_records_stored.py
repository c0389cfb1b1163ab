"""Deferred records in a run folder: one row holds a stretch of steps, and a reader finds every step."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import struct
import subprocess
import sys
from array import array
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backprobe.records import BriefSteps, Step
from backprobe.store import FILE
from backprobe.store.columns import brief_data, brief_from
from backprobe.store.reader import open_run

numbers = st.floats(width=64)


@st.composite
def stretches(draw: st.DrawFn) -> BriefSteps:
    size = draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    start, gap = draw(st.integers(0, 1 << 40)), draw(st.integers(1, 2))
    calls = [start + gap * i for i in range(sum(counts))]
    seconds = draw(st.lists(st.floats(0, 100, width=32), min_size=size, max_size=size))
    losses, scales = (draw(st.lists(numbers, min_size=size, max_size=size)) for _ in range(2))
    same = draw(st.booleans())
    return BriefSteps(
        *(draw(st.integers(0, 1 << 40)), draw(st.floats(0, 1)), draw(st.integers(0, 9)), seconds),
        *([losses[0]] * size if same else losses, counts, [scales[0]] * size if same else scales, counts),
        *(draw(st.lists(st.floats(0) | st.just(-1.0), min_size=size, max_size=size)), calls),
    )


def plain(steps: BriefSteps) -> list[str]:
    """The steps as text, in which NaN equals NaN."""
    return [repr(dataclasses.astuple(step)) for step in steps]


@given(stretches())
def test_reading_returns_what_was_written(steps: BriefSteps) -> None:
    assert plain(brief_from(steps.first, len(steps), brief_data(steps))) == plain(steps)


@given(stretches(), st.integers(0, 8))
def test_the_last_steps_are_those_at_the_end(steps: BriefSteps, count: int) -> None:
    every = plain(steps)
    assert len(every) == len(steps)
    last = [repr(dataclasses.astuple(step)) for step in steps.last(count)]
    assert last == (every[-count:] if count else [])


@given(stretches(), st.integers(0, 200), st.binary(max_size=9), st.integers(-2, 9))
def test_other_bytes_are_steps_or_an_error(steps: BriefSteps, at: int, new: bytes, more: int) -> None:
    data = brief_data(steps)
    try:
        found = brief_from(steps.first, len(steps) + more, data[:at] + new + data[at + len(new) :])
    except (ValueError, struct.error):
        return
    assert len(list(found)) == len(steps) + more


def test_a_step_has_what_its_columns_say() -> None:
    columns: dict[str, Any] = {"seconds": array("f", [0.5, 0.25]), "losses": [2.0, 7.0], "calls": [3, 0]}
    steps = [
        *BriefSteps(
            5, 0.375, 4, scales=[8.0, 1.0], counts=[2, 1], clip_norms=[-1.0, 0.5], backwards=[7, 8, 9], **columns
        )
    ]
    assert steps == [
        Step(5, 0.5, 2.0, (7, 8), (), 0.375, 3, 8.0, graphs=4),
        Step(6, 0.25, None, (9,), (), 0.25, 0, graphs=4, clip_norm=0.5),
    ]


SCRIPT = """
import json, torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for _ in range(1500):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
"""


#: The command; some steps pass after each that does not, and records of all can be paid, however slow the machine is.
START = """
import sys
from backprobe.observe.schedule import budget
from backprobe.commands import main
budget.UNRECORDED_STEP_FRACTION_IF_DEFERRED, budget.MAX_DEFERRED_SECONDS = 0.0, 0.02
budget.FREE_SECONDS = budget.LONG_STEP_ALLOWANCE_S = 0.0
budget.Budget.affords_deferred_records = lambda self: True
sys.exit(main(["run", "--quiet", "--level", "minimal", "--out", "kept", "train.py"]))
"""


def test_every_loss_of_a_run_of_very_short_steps_is_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, cwd=tmp_path, check=True)
    losses = json.loads(done.stdout)
    trace = open_run(tmp_path / "kept")
    assert [(row.index, row.loss) for row in trace.step_rows()] == [*enumerate(losses)]
    assert [step.record.loss for step in trace.steps[1400:]] == losses[1400:]
    assert [step.record.backwards for step in trace.steps[1400:]] == [(number,) for number in range(1400, 1500)]
    with closing(sqlite3.connect(tmp_path / "kept" / FILE)) as db:
        assert db.execute("select count(*) from brief").fetchone() > (0,)
    trace.close()
