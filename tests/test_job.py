"""A run of several processes read as one: merging, order and display. No torch, no process."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import os
import platform
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import pytest

import backprobe
from backprobe import Trace
from backprobe.basics.errors import BackprobeError
from backprobe.records import Facts, Finding, FindingSite, RankSeen, RankWait, Site, Step
from backprobe.report.document import document
from backprobe.store.job import load_run
from backprobe.store.parts import claim, read_parts, write_seen
from backprobe.store.writer import Writer
from backprobe.traces.coverage import ranks_text
from backprobe.view.parts import headline, report, verdict
from backprobe.view.terminal import write

LOG, REDUCE, BAD = Site("train.py", 10, "work"), Site("train.py", 20, "work"), Site("train.py", 30, "work")


def bad(kind: str, step: int, site: Site = LOG, **more: Any) -> Finding:
    return Finding(kind, "error", f"at {site.line}", "certain", step=step, sites=(FindingSite("cause", site),), **more)


def found(*ranks: RankSeen) -> list[Finding]:
    return list(Trace((), Facts(seen=ranks)).findings)


def test_equal_findings_are_one_of_the_earliest_step() -> None:
    """Whoever is read first: the first cause is not erased by what came of it."""
    (one,) = found(
        RankSeen(0, 100, findings=(bad("nonfinite-forward", 5),)),
        RankSeen(1, 101, findings=(bad("nonfinite-forward", 4),)),
    )
    assert (one.step, one.rank, one.evidence["ranks"]) == (4, 1, [0, 1])


def test_an_error_that_spread_to_other_ranks_has_its_cause() -> None:
    first, *rest = found(
        RankSeen(0, 100, findings=(bad("nonfinite-backward", 4, REDUCE), bad("inplace", 9, BAD))),
        RankSeen(1, 101, findings=(bad("nonfinite-forward", 4),)),
        RankSeen(2, 102, findings=(bad("nonfinite-forward", 5, BAD),)),
    )
    assert (first.kind, first.rank, first.step) == ("nonfinite-forward", 1, 4)
    assert first.evidence["then"] == ["rank 0, step 4: nonfinite-backward", "rank 2, step 5: nonfinite-forward"]
    assert [one.kind for one in rest] == ["inplace"]


def test_two_ranks_that_go_bad_by_themselves_in_one_step_are_two_findings() -> None:
    ranks = [RankSeen(r, 100 + r, findings=(bad("nonfinite-forward", 4, site),)) for r, site in enumerate((LOG, BAD))]
    assert [one.rank for one in found(*ranks)] == [0, 1]


def test_processes_without_a_rank_have_their_number() -> None:
    (one,) = found(RankSeen(None, 77, findings=(bad("inplace", 1),)))
    assert (one.rank, one.evidence["process"]) == (None, 77)


PEER_CLOSED = "RuntimeError: [gloo] Connection closed by peer"


def test_a_rank_that_raised_is_the_finding_and_not_those_that_wait_for_it() -> None:
    victim = dataclasses.replace(bad("backward-error", 3), title=PEER_CLOSED)
    (one,) = found(
        RankSeen(0, 100, error=PEER_CLOSED, code=1, findings=(victim,)),
        RankSeen(1, 101, error="ValueError: bad batch\nmore", code=1, raised=BAD, steps=3),
        RankSeen(2, 102, signal=15),
    )
    assert (one.kind, one.rank, one.step) == ("rank-failed", 1, 3)
    assert one.title == "rank 1 ended with ValueError: bad batch"
    assert [(s.role, s.site) for s in one.sites] == [("raised", BAD)]


def test_a_killed_rank_has_its_last_known_line() -> None:
    (one,) = found(RankSeen(0, 100, signal=15), RankSeen(1, 101, trail=((1.0, LOG), (2.0, BAD)), over=False))
    assert one.title == "rank 1 was killed: it ended without a word"
    assert [(s.role, s.site) for s in one.sites] == [("last", BAD)]


def test_a_rank_killed_because_others_waited_for_it_is_not_the_cause() -> None:
    ranks = RankSeen(0, 100, error="RuntimeError: [gloo] Timed out waiting", code=1), RankSeen(1, 101, over=False)
    assert "rank-failed" not in [one.kind for one in found(*ranks)]


def test_a_rank_with_an_explained_error_is_reported_once() -> None:
    own = bad("inplace", 2)
    (one,) = found(RankSeen(0, 100, signal=15), RankSeen(1, 101, error="RuntimeError: modified", findings=(own,)))
    assert one.kind == "inplace"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0 and 1"),
        ([0, 1, 2], "ranks 0 to 2"),
        ([0, 1, 3], "ranks 0, 1 and 3"),
        ([0, 1, 2, 5, 6], "ranks 0 to 2, 5 and 6"),
        ([*range(7), 8], "ranks 0 to 6 and 8"),
    ],
)
def test_ranks_in_words(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text


# On disk


def part(folder: Path, rank: int | None, steps: int = 3, over: bool = True, **more: Any) -> None:
    """A process of the run in `folder`, as it would have written itself."""
    own = claim(folder, f"rank-{rank}" if rank is not None else "1234")
    gone = subprocess.Popen([sys.executable, "-c", ""]) if not over else None
    pid = 10_000_000 + (rank or 0) if gone is None else gone.pid
    if gone is not None:
        gone.wait()
    about = {"pid": pid, "machine": platform.node(), "started": time.time(), "part": own.name, "script": "train.py"}
    writer = Writer(own, about)
    for index in range(steps):
        writer.step(Step(index, 0.1, 1.0 / (index + 1 + (rank or 0)), ()), "same", tuple)
    if over:
        writer.put({"steps": steps, "backwards": steps, "seconds": 1.0, "code": 0})
        writer.close(Facts(), more.get("findings", ()))
    else:
        writer._db.close()
    loss = 1.0 / (steps + (rank or 0))
    seen = RankSeen(rank, pid, over=over, steps=steps, backwards=steps, machine=platform.node(), part=own.name)
    write_seen(own, dataclasses.replace(seen, loss=loss, recorded=steps, **more))


def job(folder: Path) -> None:
    """A run whose ranks were each started with the command."""
    folder.mkdir(exist_ok=True)
    (folder / "job.json").write_text(json.dumps({"job": "a", "world": 2}))


def shown(trace: Trace) -> str:
    out = io.StringIO()
    write(report(trace, details=True), out)
    return out.getvalue()


def test_a_run_without_a_first_process_is_read(tmp_path: Path) -> None:
    job(tmp_path)
    part(tmp_path, 0)
    part(tmp_path, 1, findings=(bad("nonfinite-forward", 1),))
    trace = backprobe.load_run(tmp_path)
    assert [(p.rank, p.ended, p.steps) for p in trace.processes] == [(0, "finished", 3), (1, "finished", 3)]
    (one,) = trace.findings
    assert (one.rank, trace.info["part"]) == (1, "rank-1")  # the steps of the one that it is about
    assert one.as_dict()["rank"] == trace.as_dict()["findings"][0]["rank"] == 1
    assert load_run(tmp_path, 0).info["part"] == "rank-0"
    with pytest.raises(BackprobeError, match="has no steps of rank 7; it has those of"):
        load_run(tmp_path, 7)


def test_a_killed_process_has_its_finished_steps_and_is_in_the_headline(tmp_path: Path) -> None:
    job(tmp_path)
    part(tmp_path, 0)
    part(tmp_path, 1, steps=2, over=False)
    trace = backprobe.load_run(tmp_path)
    assert [(p.ended, p.steps, p.backwards) for p in trace.processes] == [("finished", 3, 3), ("killed", 2, 2)]
    assert len(trace.steps) == 2
    assert "rank 1 ended without a word (killed)" in headline(trace)
    assert [one.kind for one in trace.findings] == ["rank-failed"]


def test_the_overhead_is_that_of_the_most_slowed_rank(tmp_path: Path) -> None:
    job(tmp_path)
    part(tmp_path, 0, took={"cost": 0.03, "first_steps": 2, "first_cost": 0.5, "own": 0.1})
    part(tmp_path, 1, took={"cost": 0.04, "first_steps": 2, "first_cost": 0.25, "own": 0.1})
    assert "of which backprobe at least 0.6 s)" in " ".join(headline(backprobe.load_run(tmp_path)).split())
    for one in (0, 1):  # a launcher took nothing
        seen = read_parts(tmp_path)[tmp_path / "parts" / f"rank-{one}"]
        took = {"cost": None, "first_steps": 2, "first_cost": 0.5 + one, "own": 0.0}
        write_seen(tmp_path / "parts" / f"rank-{one}", dataclasses.replace(seen, took=took))
    (tmp_path / "job.json").unlink()
    info = {"pid": 5, "seconds": 9.0, "cost": None, "first_steps": 0, "first_cost": 0.0, "own": 0.0}
    launcher = Trace((), Facts(seen=tuple(read_parts(tmp_path).values())), info)
    assert "of which backprobe at least 1.5 s)" in " ".join(headline(launcher).split())


def test_a_failed_process_suppresses_the_no_findings_message(tmp_path: Path) -> None:
    part(tmp_path, None, error="ValueError: bad batch", code=1)
    part(tmp_path, 0)
    (tmp_path / "job.json").write_text("{}")
    trace = backprobe.load_run(tmp_path)
    assert trace.findings == [] and "No problems found." not in verdict(trace).text
    assert "ended with ValueError: bad batch" in verdict(trace).text


def test_unreadable_parts_of_a_process_are_counted(tmp_path: Path) -> None:
    job(tmp_path)
    part(tmp_path, 0)
    claim(tmp_path, "rank-1")
    (tmp_path / "parts" / "rank-1" / "seen.json").write_text("{")
    trace = backprobe.load_run(tmp_path)
    assert [p.rank for p in trace.processes] == [0]
    assert "1 processes" in trace.coverage.gaps[0]


def test_missing_ranks_suppress_the_no_findings_message(tmp_path: Path) -> None:
    job(tmp_path)
    part(tmp_path, 0, world=2)
    trace = backprobe.load_run(tmp_path)
    assert "No problems found." not in verdict(trace).text and trace.coverage.gaps == ("not seen: 1 ranks",)
    assert "the command goes inside of them" in shown(trace)
    part(tmp_path, 1, world=2)
    assert "No problems found." in verdict(backprobe.load_run(tmp_path)).text


def test_a_failed_rule_is_reported_for_the_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AttributeError("no such thing")

    job(tmp_path)
    part(tmp_path, 0)
    part(tmp_path, 1, steps=2, over=False)
    monkeypatch.setattr("backprobe.findings.stopped_ranks.rule.held", fails)
    trace = backprobe.load_run(tmp_path)
    notes = [one.note for one in trace.facts.unseen if one.what == "internal error"]
    assert "the rule backprobe.findings.stopped_ranks.rule.failed failed: AttributeError: no such thing" in notes
    assert "No problems found." not in verdict(trace).text


def test_fields_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    own = claim(tmp_path, "rank-0")
    write_seen(own, RankSeen(0, os.getpid(), loss=0.5))
    plain = json.loads((own / "seen.json").read_text())
    plain["fields"]["RankSeen"] = [*plain["fields"]["RankSeen"], "newer"]
    plain["seen"].append("?")
    (own / "seen.json").write_text(json.dumps(plain))
    assert read_parts(tmp_path)[own].loss == 0.5


def test_64_ranks_are_a_few_rows_and_read_at_once(tmp_path: Path) -> None:
    job(tmp_path)
    for rank in range(64):
        ended = {"error": "ValueError: bad", "code": 1} if rank == 17 else {"signal": 15}
        part(tmp_path, rank, **ended)  # type: ignore[arg-type]
    trace = load_run(tmp_path)
    text = shown(trace)
    rows = [
        line.split()
        for line in text.splitlines()[
            : text.splitlines().index(next(line for line in text.splitlines() if line.startswith("What follows")))
        ]
    ]
    names = [row[0] for row in rows]
    assert "17" in names and "63" not in names, text
    assert "What follows is of rank 17." in text and text.count("SIGTERM") <= 3
    assert "ranks 0 to 16 and 18 to 63 were ended by SIGTERM" in " ".join(headline(trace).split())


def read(packed: dict[str, str]) -> list[float]:
    code = {"f64": "d", "f32": "f", "i32": "i", "u8": "B"}[packed["t"]]
    return array(code, base64.b64decode(packed["b"])).tolist()


def test_ranks_side_by_side_in_the_document(tmp_path: Path) -> None:
    job(tmp_path)
    waits = (RankWait("all_reduce", LOG, time.time() + 5, 7.5, "raised", "backward", "default", 3),)
    part(tmp_path, 0, waits=waits)
    part(tmp_path, 1, steps=2, error="ValueError: bad", code=1)
    trace = backprobe.load_run(tmp_path)
    made = document(trace)
    told = made["ranks"]
    rows = [(r["rank"], r["steps"], r["ended"], r["failed"], r["finding"], r["shown"]) for r in told["rows"]]
    assert rows == [(0, 3, "finished", False, -1, False), (1, 2, "ValueError", True, 0, True)]
    pictures = told["pictures"]
    assert (pictures["ranks"], pictures["width"], pictures["count"]) == ([0, 1], 1, 3)
    losses = [1.0, 1 / 2, 1 / 2, 1 / 3, 1 / 3, -math.inf]  # by step, and then by rank
    assert read(pictures["loss"]) == losses
    assert read(pictures["seconds"]) == [0.1] * 5 + [-math.inf]
    assert set(read(pictures["gradient"])) == {-math.inf}
    (wait,) = told["waits"]
    assert (wait["rank"], wait["op"], wait["inside"], wait["number"]) == (0, "all_reduce", "backward", 3)
    assert made["sites"][wait["site"]]["line"] == LOG.line and 4 < wait["began"] < 60
    assert {rank: len(one.steps) for rank, one in trace.ranks.items()} == {0: 3, 1: 2}
    trace.close()


def test_many_steps_of_ranks_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprobe.report.ranks.MAX_CELLS", 4)
    job(tmp_path)
    part(tmp_path, 0, steps=5)
    part(tmp_path, 1, steps=5)
    pictures = document(backprobe.load_run(tmp_path))["ranks"]["pictures"]
    assert (pictures["width"], pictures["count"]) == (4, 2)
    assert read(pictures["loss"]) == [1.0, 1 / 2, 1 / 5, 1 / 6]  # the greatest of four steps, and the fifth


def test_a_process_that_was_alone_has_no_ranks() -> None:
    assert document(Trace())["ranks"] is None and Trace().ranks == {}
