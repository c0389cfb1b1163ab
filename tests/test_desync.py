"""Who waits for whom, on hand-written words of ranks."""

from __future__ import annotations

import dataclasses
import os
import platform
import time

import pytest

from backprobe.desync import held, listed, said, told
from backprobe.records import Collective, Facts, RankSeen, RankWait, Site
from backprobe.traced import Trace

WAIT, OTHER, END = (
    Site("/a/train.py", 10, "work"),
    Site("/a/train.py", 20, "work", "time.sleep(9)"),
    Site("c.py", 3, "f"),
)
GROUP = "0 (default_pg)"


def called(number: int, op: str = "all_reduce", inputs: str = "float[3]", over: bool = True, **more) -> Collective:
    return Collective(
        **{
            "group": GROUP,
            "began": 100.0 + number,
            "site": WAIT,
            **more,
            "number": number,
            "op": op,
            "inputs": inputs,
            "over": over,
        }
    )


def waits(
    rank: int, number: int, *before: Collective, site: Site = WAIT, op: str = "all_reduce", ended: str = "never", **more
) -> RankSeen:
    wait = RankWait(op, site, 100.0 + number, 30.0, ended, group=GROUP, number=number, inputs="float[3]")
    last = called(number, op, over=False, site=site)
    return RankSeen(rank, 100 + rank, (wait,), collectives=(*before, last), **more)


def test_who_has_not_come_is_waited_for() -> None:
    late = RankSeen(1, 101, (), ((90.0, WAIT), (109.0, OTHER)), over=False, collectives=(called(7),))
    found = held([waits(0, 8), late, waits(2, 8)])
    assert found is not None
    assert [seen.rank for seen, _ in found.waiting] == [0, 2]
    assert [(one.seen.rank, one.site) for one in found.others] == [(1, OTHER)]
    assert told(found) == [
        "rank 1 did not call it (its last there is number 7, all_reduce): it was at train.py:20: time.sleep(9)"
    ]


@pytest.mark.parametrize(("busy", "doing"), [(0.9, "computes"), (0.0, "stands still"), (None, "is")])
def test_what_an_absent_rank_does_while_the_run_goes_on(busy: float | None, doing: str) -> None:
    here = {"machine": platform.node(), "said": time.time(), "busy": busy}
    late = RankSeen(1, os.getpid(), (), ((90.0, OTHER),), over=False, collectives=(called(7),), **here)
    found = held([waits(0, 8), late], live=True)
    assert found is not None
    assert said(found).endswith(
        "in all_reduce of float[3] (number 8 of the default group) at train.py:10; rank 1 has not called it "
        f"(its last there is number 7, all_reduce): it {doing} at train.py:20: time.sleep(9)"
    )


def test_one_that_is_gone_raised_ended_or_is_silent() -> None:
    there = {"machine": platform.node(), "collectives": (called(7),)}
    gone = RankSeen(1, 2**22 - 1, (), ((90.0, OTHER),), over=False, **there)
    (text,) = told(held([waits(0, 8), gone], live=True))
    assert text.endswith("it is gone; last seen at train.py:20: time.sleep(9)")
    silent = RankSeen(1, os.getpid(), (), ((90.0, OTHER),), over=False, said=time.time() - 60, **there)
    assert "it has not answered for 60 s; last seen at train.py:20" in told(held([waits(0, 8), silent], live=True))[0]
    raised = RankSeen(1, 5, (), ((90.0, OTHER),), error="ValueError: no", raised=END, **there)
    (text,) = told(held([waits(0, 8), raised]))
    assert text.endswith("it raised ValueError: no at c.py:3")
    assert held([waits(0, 8), raised]).others[0].site == END
    ended = RankSeen(1, 5, (), ((90.0, OTHER),), **there)
    assert told(held([waits(0, 8), ended]))[0].endswith("it had come to its end")


def test_one_that_came_late() -> None:
    late = RankSeen(1, 101, (), ((90.0, OTHER),), collectives=(called(8, began=150.0, over=False),))
    words = ["rank 1 came to it 42 s later: it was at train.py:20: time.sleep(9)"]
    assert told(held([waits(0, 8, ended="raised"), late])) == words
    # It failed then, too, for the others were gone.
    failed = RankWait("a collective operation", WAIT, 150.0, 0.0, "raised")
    both = dataclasses.replace(late, waits=(failed,), error="RuntimeError: Connection closed by peer", raised=WAIT)
    found = held([waits(0, 8, ended="raised"), both])
    assert ([seen.rank for seen, _ in found.waiting], told(found), found.others[0].site) == ([0], words, OTHER)


def test_operations_that_part_under_one_number() -> None:
    usual = [called(6), called(7)]
    odd = waits(1, 7, called(6), site=OTHER, op="barrier", backwards=6)
    found = held([waits(0, 8, *usual, backwards=7), odd, waits(2, 8, *usual, backwards=7)])
    assert [seen.rank for seen, _ in found.waiting] == [0, 2]
    assert told(found) == [
        "rank 1 called barrier of float[3] at train.py:20 as number 7 of the default group, where others called "
        "all_reduce of float[3] at train.py:10; it has made 6 backward calls, rank 0 7"
    ]


def test_of_two_the_one_that_leaves_the_usual_order_parted() -> None:
    """A barrier inside ``if rank == 0``: the other one's reduction has come after a reduction before."""
    usual = [called(number) for number in range(3, 7)]
    alone = waits(0, 7, *usual, site=OTHER, op="barrier")
    for ranks in ([alone, waits(1, 7, *usual)], [waits(1, 7, *usual), alone]):
        found = held(ranks)
        assert ([s.rank for s, _ in found.waiting], found.others[0].seen.rank, found.others[0].site) == ([1], 0, OTHER)


def test_inputs_that_may_differ_are_no_parting() -> None:
    ranks = [
        waits(n, 8, called(7, "alltoall", f"float[{n + 1}]"), called(6, "scatter", "" if n else "float[2]"))
        for n in (0, 1)
    ]
    late = RankSeen(2, 102, (), ((109.0, OTHER),), over=False, collectives=(called(7, "alltoall", "float[9]"),))
    found = held([*ranks, late])
    assert found is not None
    assert [one.seen.rank for one in found.others] == [2] and "did not call it" in told(found)[0]


def test_two_groups_in_another_order() -> None:
    here = waits(0, 8, called(7))
    wait = RankWait("all_reduce", OTHER, 109.0, 29.0, "raised", group="1", number=1, inputs="float[3]")
    there = RankSeen(
        1, 101, (wait,), collectives=(called(7), called(1, group="1", over=False, site=OTHER)), error="timeout"
    )
    assert told(held([here, there])) == [
        "rank 1 did not call it (its last there is number 7, all_reduce): it waited in all_reduce of float[3] (number "
        "1 of group 1) at train.py:20"
    ]


def test_a_rank_of_other_groups_is_not_waited_for() -> None:
    wait = RankWait("all_reduce", WAIT, 100.0, 30.0, "never", group="1", number=4, inputs="float[3]")
    ones = [RankSeen(r, r, (wait,), collectives=(called(4, group="1", over=False),)) for r in (0, 1)]
    apart = RankSeen(2, 2, (), ((90.0, OTHER),), collectives=(called(9, group="2"),))
    found = held([*ones, apart])
    assert [one.seen.rank for one in found.others] == [2]  # nobody is behind: by place, and not certain
    late = RankSeen(3, 3, (), ((90.0, END),), collectives=(called(3, group="1"),))
    assert [one.seen.rank for one in held([*ones, apart, late]).others] == [3]


def test_the_finding_is_about_the_one_that_did_not_come() -> None:
    late = RankSeen(1, 101, (), ((109.0, OTHER),), over=False, collectives=(called(7),), alive=True)
    (found,) = Trace([], Facts(seen=(waits(0, 8, ended="raised", error="Timed out waiting 9 ms"), late))).findings
    assert (found.kind, found.rank, found.confidence) == ("rank-desync", 1, "certain")
    assert [(one.role, one.site) for one in found.sites] == [("waiting", WAIT), ("skipping", OTHER)]
    assert (found.evidence["number"], found.evidence["group"], found.evidence["waiting"]) == (8, GROUP, [0])


def test_many_ranks_in_a_few_words() -> None:
    late = [RankSeen(r, r, collectives=(called(7),)) for r in range(60, 64)]
    found = held([*(waits(r, 8) for r in range(60)), *late])
    assert listed([seen for seen, _ in found.waiting]) == "ranks 0 to 59"
    assert told(found) == [
        "ranks 60 to 63 did not call it (its last there is number 7, all_reduce): it had come to its end"
    ]


def test_nobody_waits() -> None:
    assert held([RankSeen(0, 1), RankSeen(1, 2)]) is None
