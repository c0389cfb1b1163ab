"""Ranks that differ from the others, on hand-written records."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from backprobe import Trace
from backprobe.records import Facts, Finding, RankSeen, Replica, Replicas, ReplicaState, Site

BACKWARD_SITE, SLOW_SITE = Site("train.py", 10, "train"), Site("train.py", 20, "load")
STEPS = range(20)


def usual(number: int) -> list[float]:
    return [2.0 + 0.5 * math.sin(7 * step + number) for step in STEPS]


def rank(number: int, norms: Sequence[float] = (), how: str = "ddp", late: float = 0.0, **more) -> RankSeen:
    """Make a rank that reaches a collective every 0.2 s, some milliseconds earlier or later; `late` delays all."""
    reduced = (5,) if how != "apart" else (5 + number,)
    how = "" if how == "apart" else how
    states = tuple(ReplicaState(step, 0, (1,), reduced, (1,), BACKWARD_SITE) for step in (0, 1))
    begin = [100 + 0.2 * step + 0.004 * math.sin(9 * step + number) for step in STEPS]
    given = {
        "norms": tuple(enumerate(norms)),
        "replicas": (Replicas(number, 3, (Replica("weight", (2,), how),), states),),
        "arrivals": (("0 (default_pg)", 7, tuple(at + late for at in begin)),),
        "trail": tuple((at + late / 2, SLOW_SITE) for at in begin) if late else (),
    }
    return RankSeen(number, 100 + number, **{**given, **more})


def found(*ranks: RankSeen) -> list[Finding]:
    return list(Trace((), Facts(seen=ranks)).findings)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("how", ["ddp", "fsdp", ""])
def test_gradients_of_another_size(count: int, how: str) -> None:
    large = rank(1, [30 * norm for norm in usual(1)], how)
    (one,) = found(*(large if n == 1 else rank(n, usual(n), how) for n in range(count)))
    assert (one.kind, one.rank, one.step, one.confidence) == (
        "rank-outlier",
        1,
        0,
        "likely" if count > 2 else "possible",
    )
    assert [(s.role, s.site) for s in one.sites] == [("backward", BACKWARD_SITE)]
    assert 10 < one.evidence["times"] < 90


def test_gradients_from_a_step_on() -> None:
    norms = [(40 + 9 * (step % 3) if step >= 6 else 1) * norm for step, norm in enumerate(usual(1))]
    (one,) = found(rank(0, usual(0)), rank(1, norms))
    assert (one.rank, one.step, one.confidence) == (1, 6, "likely")
    assert "from step 6 on" in one.title and 20 < one.evidence["times"] < 100 and one.evidence["steps"] == 14
    # Those of the other become small: it is not the one whose own went up.
    small = [n / 40 if s >= 6 else n for s, n in enumerate(usual(0))]
    assert all(f.step != 6 for f in found(rank(0, small), rank(1, usual(1))))
    # It comes back.
    back = [norm if step >= 16 else large for step, (norm, large) in enumerate(zip(usual(1), norms, strict=True))]
    assert all(f.step != 6 for f in found(rank(0, usual(0)), rank(1, back)))


def test_gradients_of_a_single_step() -> None:
    norms = usual(1)
    norms[11] *= 1000
    (one,) = found(rank(0, usual(0)), rank(1, norms))
    assert (one.rank, one.step) == (1, 11)
    norms = usual(1)
    norms[11] /= 1000  # what went down: of two, the other looks large then, and is not
    assert found(rank(0, usual(0)), rank(1, norms)) == []


def test_a_rank_that_the_others_wait_for() -> None:
    (one,) = found(rank(0), rank(1, late=0.1), rank(2))
    assert (one.rank, one.evidence["of"], [(s.role, s.site) for s in one.sites]) == (1, "time", [("late", SLOW_SITE)])
    assert 0.4 < one.evidence["share"] < 0.6 and "ranks 0 and 2 stood still for it" in one.title


def test_ranks_that_are_no_outliers() -> None:
    large = [30 * norm for norm in usual(1)]
    assert found(rank(0, usual(0)), rank(1, usual(1))) == []
    assert found(rank(0, usual(0), "apart"), rank(1, large, "apart")) == []  # two models
    assert found(rank(0, usual(0), "dtensor"), rank(1, large, "dtensor")) == []  # two parts
    assert found(rank(0, usual(0)[:5]), rank(1, large[:5])) == []
    assert found(rank(0), rank(1, late=0.01)) == []
    assert found(rank(0, machine="a"), rank(1, late=0.1, machine="b")) == []  # two clocks
    assert [f.kind for f in found(rank(0), rank(1, late=0.1, error="ValueError: no"))] == ["rank-failed"]
    # Of a run of a second, a rank that was late eight times by 21 ms: two processes that start on a busy machine.
    short = [tuple(0.07 * s + 0.021 * n + 1 for s in range(8)) for n in (0, 1)]
    assert found(*(rank(n, arrivals=(("0", 1, short[n]),)) for n in (0, 1))) == []
    # Now one, now the other.
    turns = [[0.2 * s + (0.1 if s % 2 == n else 0.0) + 1 for s in STEPS] for n in (0, 1)]
    assert found(*(rank(n, arrivals=(("0", 1, tuple(turns[n])),)) for n in (0, 1))) == []


NOISE = [math.exp(0.3 * (-1) ** step) for step in range(20)]


@pytest.mark.parametrize(
    ("norms", "reported"),
    [
        ([2.0 * 4.8] * 20, False),
        ([2.0 * 5.2] * 20, True),
        ([2.0] * 11 + [2.0 * 19] + [2.0] * 8, False),
        ([2.0] * 11 + [2.0 * 21] + [2.0] * 8, True),
        ([20.0] * 7, False),
        ([20.0] * 8, True),
        ([2.0 * 14 * noise for noise in NOISE], False),  # it varies as much
        ([2.0 * 15 * noise for noise in NOISE], True),
    ],
)
def test_how_far_the_gradients_of_a_rank_have_to_be(norms: list[float], reported: bool) -> None:
    assert bool(found(rank(0, [2.0] * len(norms)), rank(1, norms))) == reported
