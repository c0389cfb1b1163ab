"""Display of parts of a trace at a prompt and in a notebook."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest
import torch
from torch import nn

import backprobe
from backprobe import Trace
from backprobe.records import Finding, FindingSite, Site, Unseen
from backprobe.traces.tables import MAX_ROWS, table


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with backprobe.trace(model, budget="none") as live:
        for i in range(3):
            optimizer.zero_grad()
            loss = (model(torch.ones(5, 3)) / (0.0 if i == 2 else 1.0)).square().mean()
            loss.backward()
            optimizer.step()
    return live


def test_findings_are_shown_with_their_lines(trace: Trace) -> None:
    said = repr(trace.findings)
    assert said.startswith("1. nonfinite-forward  error, certain")
    assert Path(__file__).name in said and "> " in said
    page = trace.findings._repr_html_()  # type: ignore[attr-defined]
    assert "<b>&gt;" in page and "(0.0 if i == 2 else 1.0)" in unescape(page)
    (found,) = trace.findings
    assert repr(found).startswith("<error, certain: nonfinite-forward at ") and "evidence" not in repr(found)


def test_steps_and_calls_are_tables(trace: Trace) -> None:
    head, *rows = repr(trace.steps).splitlines()
    assert head.split()[:2] == ["step", "loss"] and len(rows) == 3
    assert rows[2].split()[:2] == ["2", "inf"]
    (call,) = trace.steps[1].backwards
    assert call.site is not None and f"{Path(__file__).name}:{call.site.line}" in repr(trace.steps[1].backwards)
    assert "Linear" in repr(trace.steps[0].module_calls)
    assert "0.weight" in trace.steps[0]._repr_html_() and "backward call" in trace.steps[0]._repr_html_()
    assert "0.weight" in repr(trace.parameters) and "<td" in trace.parameters._repr_html_()  # type: ignore[attr-defined]
    assert repr(trace["0"]).startswith("<0: ")


def test_stored_runs_are_shown_alike(trace: Trace, tmp_path: Path) -> None:
    read = backprobe.load_run(trace.save(tmp_path / "run"))
    assert repr(read.steps) == repr(trace.steps)
    assert repr(read.findings) == repr(trace.findings)
    assert repr(read.steps[0].backwards) == repr(trace.steps[0].backwards)
    assert repr(read.parameters) == repr(trace.parameters)


def test_many_rows_are_cut_in_the_middle() -> None:
    rows = [Unseen(f"thing {i}", i, "") for i in range(MAX_ROWS + 10)]
    lines = table(rows).splitlines()
    assert len(lines) == MAX_ROWS + 2
    assert "... 10 more ..." in lines[1 + MAX_ROWS // 2]
    assert "thing 0" in lines[1] and f"thing {MAX_ROWS + 9}" in lines[-1]


def test_empty_traces_are_shown_empty() -> None:
    assert repr(Trace(findings=()).findings) == "[]" and repr(Trace().steps) == "[]"
    assert "No findings" in Trace(findings=()).findings._repr_html_()  # type: ignore[attr-defined]


def test_nothing_of_a_run_becomes_html() -> None:
    evil = "</pre><script>alert(1)</script>"
    site = Site(evil, 1, evil, evil)
    found = Finding("inplace", "error", evil, "certain", evil, sites=(FindingSite(evil, site),), advice=evil)
    trace = Trace(findings=[found])
    assert "<script" not in trace.findings._repr_html_()  # type: ignore[attr-defined]
