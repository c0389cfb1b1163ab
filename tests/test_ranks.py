"""Several processes: what children find, and a rank that waits for one that does not come."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from backprobe.records import Facts, Finding, FindingSite, RankSeen, RankWait, Site
from backprobe.traced import Trace

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


def test_of_two_that_wait_for_each_other_the_one_with_a_way_around_is_waited_for() -> None:
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


def test_all_ranks_at_one_line_blame_nobody() -> None:
    wait = (RankWait("barrier", WAIT, 50.0, 5.0, "raised"),)
    (found,) = kinds(RankSeen(0, 100, wait), RankSeen(1, 101, wait))
    assert found.confidence == "possible"
    assert "no other rank was seen to call it" not in found.title or len(found.sites) == 1


def test_waits_that_returned_are_no_finding() -> None:
    assert kinds(RankSeen(0, 100, (RankWait("barrier", WAIT, 50.0, 9.0, "returned"),))) == []


def test_the_same_in_two_processes_is_said_once() -> None:
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
