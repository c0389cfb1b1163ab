"""Several processes: what children find, and a rank that waits for one that does not come."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backprobe import Trace
from backprobe.observe.trackers.ranks import ended_waits
from backprobe.records import Facts, Finding, FindingSite, RankSeen, RankWait, Site
from backprobe.traces.coverage import missing

WAIT, OTHER, END = Site("train.py", 10, "work"), Site("train.py", 20, "work"), Site("train.py", 30, "work")


def kinds(*ranks: RankSeen) -> list[Finding]:
    return list(Trace([], Facts(seen=ranks)).findings)


def test_a_rank_that_waits_for_one_that_is_elsewhere() -> None:
    (found,) = kinds(
        RankSeen(0, 100, (RankWait("all_reduce", WAIT, 50.0, 4.0, "raised"),), ((50.0, WAIT),), error="Timed out"),
        RankSeen(1, 101, (), ((40.0, WAIT), (50.5, END)), over=False, alive=True),
    )
    assert (found.kind, found.rank, found.confidence) == ("rank-desync", 1, "likely")
    assert [(s.role, s.site) for s in found.sites] == [("waiting", WAIT), ("skipping", END)]
    assert (
        "rank 0 waited 4 s in all_reduce, until it failed: rank 1 did not call it: it was at train.py:30" in found.title
    )


def test_two_ranks_in_two_operations() -> None:
    (found,) = kinds(
        RankSeen(0, 100, (RankWait("broadcast", OTHER, 51.0, 4.0, "raised"),)),
        RankSeen(1, 101, (RankWait("barrier", WAIT, 50.0, 5.0, "never"),)),
    )
    assert (found.rank, found.evidence["waiting"]) == (0, [1])
    assert [s.site for s in found.sites] == [WAIT, OTHER]
    assert "to the end of the run: rank 0 waited in broadcast at train.py:20" in found.title


def test_the_ways_around_a_collective_are_named() -> None:
    leaves = Site("train.py", 15, "work")
    waits = RankSeen(0, 100, (RankWait("all_reduce", WAIT, 50.0, 4.0, "raised"),), ((50.0, WAIT),), error="Timed out")
    around = RankSeen(1, 101, (), ((40.0, WAIT), (50.5, END)), over=False, alive=True, branches=(leaves,), step=7)
    (found,) = kinds(waits, around)
    assert (found.rank, found.step) == (1, 7)
    assert [(s.role, s.site) for s in found.sites] == [("waiting", WAIT), ("skipping", END), ("branch", leaves)]
    (found,) = kinds(waits, replace(around, branches=(leaves,) * 4))  # too many to say anything
    assert [s.role for s in found.sites] == ["waiting", "skipping"]


def test_the_condition_of_what_leaves_is_named_beside_it() -> None:
    leaves, head, other = Site("train.py", 15, "work"), Site("train.py", 14, "work"), Site("train.py", 4, "work")
    waits = RankSeen(0, 100, (RankWait("all_reduce", WAIT, 50.0, 4.0, "raised"),), ((50.0, WAIT),), error="Timed out")
    around = RankSeen(1, 101, (), ((40.0, WAIT), (50.5, END)), over=False, alive=True, branches=(leaves,))
    around = replace(around, conditions=((leaves, head), (other, END)))  # of ways that are not told, nothing is
    (found,) = kinds(waits, around)
    assert [(s.role, s.site) for s in found.sites[2:]] == [("branch", leaves), ("condition", head)]
    (found,) = kinds(waits, replace(around, branches=(leaves, head)))  # it is named already
    assert [s.role for s in found.sites[2:]] == ["branch", "branch"]


def test_a_rank_of_a_job_of_which_nothing_else_is_known() -> None:
    """Each machine has a run of its own: one rank raises there, the other sees it go."""
    raised = RankSeen(1, 100, error="ValueError: bad batch", code=1, raised=END, steps=3, world=2)
    (found,) = kinds(raised)
    assert (found.kind, found.rank, found.sites[0].site) == ("rank-failed", 1, END)
    assert kinds(replace(raised, rank=0, world=1)) == kinds(replace(raised, world=None)) == []
    wait = (RankWait("all_reduce", WAIT, 50.0, 4.0, "raised"),)
    (found,) = kinds(RankSeen(0, 100, wait, error="Connection closed by peer", code=1, world=2))
    assert (found.kind, found.rank, found.confidence) == ("rank-desync", 1, "possible")
    assert found.title.endswith("nothing is known of rank 1, not part of this run, as where each machine has its own")
    (found,) = kinds(RankSeen(0, 100, wait, error="Connection closed by peer", code=1, world=4))
    assert found.rank == 0 and "nothing is known of ranks 1 to 3" in found.title  # whichever it was


def test_ranks_that_are_missing_are_those_of_the_last_start() -> None:
    first = [RankSeen(rank, 100 + rank, world=3) for rank in range(3)]
    assert missing(first) == [] and missing(first[1:]) == [0]
    assert missing([*first, *(RankSeen(rank, 200 + rank, world=2, restart=1) for rank in range(2))]) == []
    assert missing([RankSeen(rank, 100 + rank) for rank in (1, 2)]) == []  # no rank knows the world size


def test_of_two_waiting_ranks_the_one_with_a_branch_condition_is_blamed() -> None:
    leaves = Site("train.py", 15, "work")
    sends = RankSeen(0, 100, (RankWait("recv", OTHER, 50.0, 5.0, "raised"),), branches=(leaves,), step=3)
    head = RankSeen(1, 101, (RankWait("recv", WAIT, 51.0, 4.0, "raised"),), step=3)
    (found,) = kinds(sends, head)
    assert (found.rank, found.step, found.confidence) == (0, 3, "likely")
    assert [(s.role, s.site) for s in found.sites] == [("waiting", WAIT), ("skipping", OTHER), ("branch", leaves)]
    (found,) = kinds(sends, replace(head, branches=(END,)))
    assert found.rank == 1


@pytest.mark.parametrize("launcher", [True, False])
def test_ranks_that_were_all_interrupted_did_not_fail(launcher: bool) -> None:
    waits = RankSeen(0, 100, (RankWait("all_reduce", WAIT, 50.0, 40.0, "never"),), ((50.0, WAIT),), over=False)
    sleeps = RankSeen(1, 101, (), ((40.0, WAIT), (50.5, END)), over=False)
    killed = RankSeen(None, 102, error="SignalException: Process 102 got signal: 2", code=1)
    if not launcher:
        waits = replace(waits, over=True, error="KeyboardInterrupt", code=130)
        sleeps = replace(sleeps, over=True, error="KeyboardInterrupt", code=130)
    (found,) = kinds(waits, sleeps, *[killed] * launcher)
    assert (found.kind, found.rank) == ("rank-desync", 1), found.title
    assert kinds(*(replace(one, waits=()) for one in (waits, sleeps)), *[killed] * launcher) == []


def test_one_rank_that_was_interrupted_failed() -> None:
    stopped = RankSeen(0, 100, error="KeyboardInterrupt", code=130, raised=END, steps=3)
    left = RankSeen(1, 101, error="RuntimeError: Connection closed by peer", code=1)
    (found,) = kinds(stopped, left)
    assert (found.kind, found.rank, found.title) == ("rank-failed", 0, "rank 0 ended with KeyboardInterrupt")


def test_all_ranks_at_one_line_blame_no_rank() -> None:
    wait = (RankWait("barrier", WAIT, 50.0, 5.0, "raised"),)
    (found,) = kinds(RankSeen(0, 100, wait), RankSeen(1, 101, wait))
    assert found.confidence == "possible"
    assert "no other rank was seen to call it" not in found.title or len(found.sites) == 1


def test_waits_that_returned_are_no_finding() -> None:
    assert kinds(RankSeen(0, 100, (RankWait("barrier", WAIT, 50.0, 9.0, "returned"),))) == []


@pytest.mark.parametrize("error", ["elsewhere", "there", "of a collective", "after one", "exit"])
def test_a_wait_that_was_over_when_the_process_raised_elsewhere(error: str) -> None:
    """An ordinary error elsewhere, right after a failed wait, shows that the wait had returned."""

    class Seen:
        def records(self, failed: bool) -> tuple[RankWait, ...]:
            return (RankWait("barrier", OTHER if error == "of a collective" else WAIT, 50.0, 2.0, "raised"),)

        def collectives(self) -> tuple[()]:
            return ()

    raised: BaseException = SystemExit(1) if error == "exit" else ValueError("bad batch")
    if error == "of a collective":
        raised = RuntimeError("[gloo] Timed out waiting")
    if error == "after one":
        raised.__context__ = RuntimeError("[gloo] Connection closed by peer")
    at = WAIT if error == "there" else OTHER
    frames: Any = SimpleNamespace(site_of_traceback=lambda traceback: at)
    waits = ended_waits(cast(Any, Seen()), cast(Any, SimpleNamespace(raised=raised, frames=frames)), True)
    assert [one.ended for one in waits] == ["returned" if error == "elsewhere" else "raised"]


def test_the_same_finding_in_two_processes_is_reported_once() -> None:
    bad = Finding("none-grad", "warning", "nothing", "certain", sites=(FindingSite("cut", WAIT),))
    (found,) = kinds(RankSeen(0, 1, findings=(bad,)), RankSeen(1, 2, findings=(bad,)))
    assert (found.kind, found.rank, found.evidence["ranks"]) == ("none-grad", 0, [0, 1])
    (one,) = kinds(RankSeen(3, 1, findings=(bad,)))
    assert one.rank == 3


SCRIPT = """
import sys, torch
import torch.multiprocessing as mp
from torch import nn

def work(i, mistake):
    torch.manual_seed(i)
    net = nn.Linear(3, 2)
    for _ in range(3):
        p = net(torch.randn(4, 3)).relu()
        loss = (p.log() if i == 1 and mistake else p).sum()  # HERE
        loss.backward()

def load():
    from torch.utils.data import DataLoader
    return [b.sum().item() for b in DataLoader(torch.arange(8.0), batch_size=4, num_workers=1)]

if __name__ == "__main__":
    print(load())
    mp.start_processes(work, (sys.argv[2] == "mistake",), nprocs=2, start_method=sys.argv[1])
    print("done", sys.executable, len(sys.argv))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("mistake", ["mistake", "none"])
def test_children_are_watched(tmp_path, method: str, mistake: str) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    command = [
        sys.executable,
        "-m",
        "backprobe",
        "run",
        "--no-keep",
        "--findings",
        "f.json",
        "train.py",
        method,
        mistake,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"[6.0, 22.0]\ndone {sys.executable} 3\n"
    found = json.loads((tmp_path / "f.json").read_text())["findings"]
    assert "2 processes, 1 step, 3 backward calls each" in " ".join(done.stderr.split())
    if mistake == "none":
        assert found == []
    else:
        (one,) = found
        assert one["kind"] == "nonfinite-forward"
        line = next(n for n, text in enumerate(SCRIPT.splitlines(), 1) if "HERE" in text)
        assert one["sites"][0]["line"] == line
