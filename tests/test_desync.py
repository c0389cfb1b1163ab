"""Which rank waits for which, on hand-written records of ranks."""

from __future__ import annotations

import dataclasses
import os
import platform
import time

import pytest

from backprobe import Trace
from backprobe.records import Collective, Facts, RankSeen, RankWait, Site
from backprobe.traces.collective_desync import Held, describe_others, held, last_in_common, listed, said, slipped

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


def test_the_awaited_rank_is_the_one_that_has_not_arrived() -> None:
    late = RankSeen(1, 101, (), ((90.0, WAIT), (109.0, OTHER)), over=False, collectives=(called(7),))
    found = held([waits(0, 8), late, waits(2, 8)])
    assert found is not None
    assert [seen.rank for seen, _ in found.waiting] == [0, 2]
    assert [(one.seen.rank, one.site) for one in found.others] == [(1, OTHER)]
    assert describe_others(found) == [
        "rank 1 did not call it (its last there is number 7, all_reduce): it was at train.py:20: time.sleep(9)"
    ]


@pytest.mark.parametrize(("busy", "doing"), [(0.11, "computes"), (0.09, "stands still"), (None, "is")])
def test_the_activity_of_an_absent_rank_during_the_run(busy: float | None, doing: str) -> None:
    here = {"machine": platform.node(), "said": time.time(), "busy": busy}
    late = RankSeen(1, os.getpid(), (), ((90.0, OTHER),), over=False, collectives=(called(7),), **here)
    found = held([waits(0, 8), late], live=True)
    assert found is not None
    assert said(found).endswith(
        "in all_reduce of float[3] (number 8 of the default group) at train.py:10; rank 1 has not called it "
        f"(its last there is number 7, all_reduce): it {doing} at train.py:20: time.sleep(9)"
    )


@pytest.mark.parametrize(("seconds", "answers"), [(13, True), (17, False)])
def test_a_rank_that_reported_a_while_ago_does_not_answer(seconds: float, answers: bool) -> None:
    there = {"machine": platform.node(), "said": time.time() - seconds, "collectives": (called(7),)}
    silent = RankSeen(1, os.getpid(), (), ((90.0, OTHER),), over=False, **there)
    (text,) = describe_others(held([waits(0, 8), silent], live=True))
    assert ("it has not answered" not in text) == answers


def test_a_missing_rank_has_raised_has_ended_or_is_silent() -> None:
    there = {"machine": platform.node(), "collectives": (called(7),)}
    gone = RankSeen(1, 2**22 - 1, (), ((90.0, OTHER),), over=False, **there)
    (text,) = describe_others(held([waits(0, 8), gone], live=True))
    assert text.endswith("it is gone; last seen at train.py:20: time.sleep(9)")
    silent = RankSeen(1, os.getpid(), (), ((90.0, OTHER),), over=False, said=time.time() - 60, **there)
    (text,) = describe_others(held([waits(0, 8), silent], live=True))
    assert "it has not answered for 60 s; last seen at train.py:20" in text
    raised = RankSeen(1, 5, (), ((90.0, OTHER),), error="ValueError: no", raised=END, **there)
    (text,) = describe_others(held([waits(0, 8), raised]))
    assert text.endswith("it raised ValueError: no at c.py:3")
    assert held([waits(0, 8), raised]).others[0].site == END
    ended = RankSeen(1, 5, (), ((90.0, OTHER),), **there)
    assert describe_others(held([waits(0, 8), ended]))[0].endswith("it had come to its end")


def test_a_rank_that_stayed_on_a_line_and_ended_after_the_others_timed_out() -> None:
    """Its trail ends before the wait began, because it did not move: it had not come to its end then."""
    there = {"machine": platform.node(), "collectives": (called(7),)}
    slept = RankSeen(1, 5, (), ((90.0, OTHER),), said=140.0, **there)  # the wait is from 108 to 138
    found = held([waits(0, 8, ended="raised"), slept])
    assert found is not None and found.others[0].site == OTHER
    assert describe_others(found)[0].endswith("it was at train.py:20: time.sleep(9)")
    ended = RankSeen(1, 5, (), ((90.0, OTHER),), said=109.0, **there)
    assert describe_others(held([waits(0, 8, ended="raised"), ended]))[0].endswith("it had come to its end")


def test_the_last_operation_in_common() -> None:
    left = RankSeen(1, 101, (), (), collectives=(called(6), called(7), called(8, "barrier", "")))
    found = held([waits(0, 8, called(6), called(7), ended="raised"), left])
    assert found is not None
    common = last_in_common(found)
    assert common is not None and common.number == 7
    assert last_in_common(Held(found.waiting, ())) is None


def test_a_rank_that_arrived_late() -> None:
    late = RankSeen(1, 101, (), ((90.0, OTHER),), collectives=(called(8, began=150.0, over=False),))
    words = ["rank 1 came to it 42 s later: it was at train.py:20: time.sleep(9)"]
    assert describe_others(held([waits(0, 8, ended="raised"), late])) == words
    # It failed then, too, for the others were gone.
    failed = RankWait("a collective operation", WAIT, 150.0, 0.0, "raised")
    both = dataclasses.replace(late, waits=(failed,), error="RuntimeError: Connection closed by peer", raised=WAIT)
    found = held([waits(0, 8, ended="raised"), both])
    assert [seen.rank for seen, _ in found.waiting] == [0]
    assert (describe_others(found), found.others[0].site) == (words, OTHER)


def test_different_operations_under_one_sequence_number() -> None:
    usual = [called(6), called(7)]
    odd = waits(1, 7, called(6), site=OTHER, op="barrier", backwards=6)
    found = held([waits(0, 8, *usual, backwards=7), odd, waits(2, 8, *usual, backwards=7)])
    assert [seen.rank for seen, _ in found.waiting] == [0, 2]
    assert describe_others(found) == [
        "rank 1 called barrier of float[3] at train.py:20 as number 7 of the default group, where others called "
        "all_reduce of float[3] at train.py:10; it has made 6 backward calls, rank 0 7"
    ]


def test_of_two_ranks_the_one_that_leaves_the_usual_order_is_blamed() -> None:
    """A barrier inside ``if rank == 0``: the other one's reduction has come after a reduction before."""
    usual = [called(number) for number in range(3, 7)]
    alone = waits(0, 7, *usual, site=OTHER, op="barrier")
    for ranks in ([alone, waits(1, 7, *usual)], [waits(1, 7, *usual), alone]):
        found = held(ranks)
        assert ([s.rank for s, _ in found.waiting], found.others[0].seen.rank, found.others[0].site) == ([1], 0, OTHER)


def test_inputs_that_may_differ_are_not_a_mismatch() -> None:
    ranks = [
        waits(n, 8, called(7, "alltoall", f"float[{n + 1}]"), called(6, "scatter", "" if n else "float[2]"))
        for n in (0, 1)
    ]
    late = RankSeen(2, 102, (), ((109.0, OTHER),), over=False, collectives=(called(7, "alltoall", "float[9]"),))
    found = held([*ranks, late])
    assert found is not None
    assert [one.seen.rank for one in found.others] == [2] and "did not call it" in describe_others(found)[0]


@pytest.mark.parametrize("site", [OTHER, WAIT])  # one function may serve both
def test_two_groups_in_another_order(site: Site) -> None:
    here = waits(0, 8, called(7))
    wait = RankWait("all_reduce", site, 109.0, 29.0, "raised", group="1", number=1, inputs="float[3]")
    there = RankSeen(
        1, 101, (wait,), collectives=(called(7), called(1, group="1", over=False, site=site)), error="timeout"
    )
    launcher = RankSeen(None, 102, error="ProcessRaisedException: Process 0 terminated", code=1)
    assert describe_others(held([here, there, launcher])) == [
        "rank 1 did not call it (its last there is number 7, all_reduce): it waited in all_reduce of float[3] (number "
        f"1 of group 1) at train.py:{site.line}"
    ]


def test_a_rank_of_other_groups_is_not_waited_for() -> None:
    wait = RankWait("all_reduce", WAIT, 100.0, 30.0, "never", group="1", number=4, inputs="float[3]")
    ones = [RankSeen(r, r, (wait,), collectives=(called(4, group="1", over=False),)) for r in (0, 1)]
    apart = RankSeen(2, 2, (), ((90.0, OTHER),), collectives=(called(9, group="2"),))
    found = held([*ones, apart])
    assert [one.seen.rank for one in found.others] == [2]  # no rank is behind: judged by its place, and not certain
    late = RankSeen(3, 3, (), ((90.0, END),), collectives=(called(3, group="1"),))
    assert [one.seen.rank for one in held([*ones, apart, late]).others] == [3]


def test_the_finding_is_about_the_rank_that_did_not_arrive() -> None:
    late = RankSeen(1, 101, (), ((109.0, OTHER),), over=False, collectives=(called(7),), alive=True)
    (found,) = Trace([], Facts(seen=(waits(0, 8, ended="raised", error="Timed out waiting 9 ms"), late))).findings
    assert (found.kind, found.rank, found.confidence) == ("rank-desync", 1, "certain")
    assert [(one.role, one.site) for one in found.sites] == [("waiting", WAIT), ("skipping", OTHER)]
    assert (found.evidence["number"], found.evidence["group"], found.evidence["waiting"]) == (8, GROUP, [0])


def test_many_ranks_in_a_few_words() -> None:
    late = [RankSeen(r, r, collectives=(called(7),)) for r in range(60, 64)]
    found = held([*(waits(r, 8) for r in range(60)), *late])
    assert listed([seen for seen, _ in found.waiting]) == "ranks 0 to 59"
    assert describe_others(found) == [
        "ranks 60 to 63 did not call it (its last there is number 7, all_reduce): it had come to its end"
    ]


def test_no_rank_waits() -> None:
    assert held([RankSeen(0, 1), RankSeen(1, 2)]) is None


def made(rank: int, steps: list[int], sites: tuple[Site, ...] = (WAIT, OTHER), **more) -> RankSeen:
    """A rank that called two operations in each of `steps`, in these steps."""
    calls = [called(n + 1, site=sites[n % 2], step=step) for n, step in enumerate(steps)]
    return RankSeen(rank, 100 + rank, collectives=tuple(calls), **more)


FAILED_WAIT = (RankWait("all_reduce", WAIT, 120.0, 15.0, "raised"),)


def test_a_rank_that_skipped_an_operation_of_every_step() -> None:
    """All that met was alike: in step 3 rank 1 called nothing."""
    first = made(0, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], waits=FAILED_WAIT)
    second = made(1, [0, 0, 1, 1, 2, 2, 4, 4, 5, 5])
    found = held([first, second])
    assert found is not None
    ((rank, step, site),) = [(one.seen.rank, one.step, one.site) for one in found.others]
    assert (rank, step, site) == (1, 3, WAIT)
    assert describe_others(found)[0].startswith(
        "rank 1 left out all_reduce of float[3] at train.py:10 in step 3: it called 0 operations there, rank 0 2"
    )


def test_a_rank_that_called_once_more() -> None:
    first = made(0, [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4])
    second = made(1, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5], waits=FAILED_WAIT)
    found = held([first, second])
    assert found is not None
    assert [(one.seen.rank, one.step) for one in found.others] == [(0, 3)]
    assert "called all_reduce of float[3] at train.py:10 in step 3" in describe_others(found)[0]


@pytest.mark.parametrize(
    "second",
    [
        [0, 0, 1, 1, 2, 2, 3, 3],  # it has not come so far
        [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5],  # its steps begin elsewhere, from the start
        [0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 5, 5],  # apart for a moment
    ],
)
def test_sequences_that_are_not_a_skipped_or_extra_call(second: list[int]) -> None:
    assert slipped([made(0, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]), made(1, second)]) is None


def test_without_steps_there_is_no_statement_about_steps() -> None:
    plain = RankSeen(1, 101, collectives=tuple(called(n) for n in range(1, 9)))
    assert slipped([made(0, [0, 0, 1, 1, 2, 2, 3, 3]), plain]) is None


def test_rounds_between_which_ranks_make_steps_of_their_own() -> None:
    """Models that are averaged now and then: whoever comes later has made more steps, and left nothing out."""
    first = made(0, [3, 3, 7, 7, 11, 11, 13, 13], waits=FAILED_WAIT)
    assert slipped([first, made(1, [3, 3, 7, 7, 11, 11, 15, 15])]) is None


LAYERS = ("float[4]", "float[5]", "float[6]", "float[7]")


def crashed(first: int, sizes: list[str], began_in: int, rank: int = 1, **more) -> RankSeen:
    """A rank that averages its gradients one by one, `sizes` from number `first` and place 0 of a step on."""
    step, calls = began_in, []
    for at, size in enumerate(sizes):
        step += int(size == LAYERS[0] and at > 0)
        calls.append(called(first + at, inputs=size, site=WAIT, step=step))
    return RankSeen(rank, rank, collectives=tuple(calls), step=step, **more)


def test_a_skipped_operation_whose_last_record_a_crash_lost() -> None:
    """Shapes that do not fit crash a rank in C++, before it has said what it called last."""
    raised = RankWait("a collective operation", OTHER, 5.0, 0.0, "raised")
    fell = crashed(5, [*LAYERS, *LAYERS], 1, 0, over=False, error="Fatal Python error: Aborted", raised=OTHER)
    other = crashed(
        13, [*LAYERS, *LAYERS, LAYERS[0], LAYERS[1], LAYERS[3]], 3, error="Connection closed by peer", waits=(raised,)
    )
    other = dataclasses.replace(other, over=True, code=1, steps=6)
    found = held([fell, other])
    assert found is not None
    (one,) = found.others
    assert (one.seen.rank, one.step, one.site) == (1, 5, WAIT)
    (text,) = describe_others(found)
    assert text == "rank 1 left out all_reduce of float[6] at train.py:10 in step 5, which steps before called there"
    assert [f.kind for f in Trace((), Facts(seen=(fell, other))).findings] == ["rank-desync"]
    # What stops in the middle of a step has left nothing out.
    stops = dataclasses.replace(other, collectives=other.collectives[:-1])
    assert [f.kind for f in Trace((), Facts(seen=(fell, stops))).findings] == ["rank-failed"]


def test_a_crash_inside_an_operation_that_no_rank_had_called_before() -> None:
    """A loop that one rank leaves: of what it called before, no word may be left."""
    final = RankWait("all_reduce", OTHER, 199.0, 0.0, "raised")
    fell = RankSeen(1, 1, (final,), step=0, over=False, error="Fatal Python error: Aborted", raised=OTHER)
    stays = crashed(5, [*LAYERS, *LAYERS, LAYERS[0]], 1, 0, over=True, signal=15)
    for lost, usual in ((fell, stays), (dataclasses.replace(fell, collectives=(called(4),)), stays)):
        found = held([usual, lost])
        assert found is not None
        ((waiting, wait),) = found.waiting
        assert (waiting.rank, wait.number, wait.site) == (0, 13, WAIT)
        (one,) = found.others
        assert (one.seen.rank, one.step, one.site) == (1, 3, OTHER)
        assert one.why == "called all_reduce at train.py:20, and crashed there"
        (finding,) = Trace((), Facts(seen=(usual, lost))).findings
        assert (finding.kind, finding.rank, finding.step) == ("rank-desync", 1, 3)
        assert [site.role for site in finding.sites] == ["waiting", "skipping"]


def test_a_crash_while_the_others_called_a_new_operation() -> None:
    """Which rank of two crashes is chance: the one that is where none has been is the one that parted."""
    usual = RankWait("all_reduce", WAIT, 199.0, 0.0, "raised")
    fell = RankSeen(0, 0, (usual,), step=1, over=False, error="Fatal Python error: Aborted", raised=WAIT)
    left = crashed(5, [*LAYERS], 1, 1, over=True, signal=15)
    left = dataclasses.replace(left, collectives=(*left.collectives, called(9, site=OTHER, step=2)))
    found = held([fell, left])
    assert found is not None
    assert [(seen.rank, wait.site) for seen, wait in found.waiting] == [(0, WAIT)]
    assert [(one.seen.rank, one.site) for one in found.others] == [(1, OTHER)]
