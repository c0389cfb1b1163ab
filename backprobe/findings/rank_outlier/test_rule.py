"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, kinds, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    RankSeen,
)


def pacing(rank: int) -> RankSeen:
    """Rank 1 comes late to each collective."""
    times = tuple(50.0 + n + 0.5 * rank for n in range(18))
    return RankSeen(rank, 100 + rank, trail=((50.3, at(63)),), arrivals=(("0", 1, times),))


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "rank-outlier": (traced(STEP, seen=[pacing(0), pacing(1)]), [("late", 63)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def paced(rank: int, late: float, period: float, rounds: int, last: float) -> RankSeen:
    """Rank 1 comes late to this share of the rounds, and early to the others."""
    times = tuple(50.0 + period * n + late * rank * (1 if n % 20 < 20 * last else -0.5) for n in range(rounds))
    return RankSeen(rank, 100 + rank, trail=((50.3, at(63)),), arrivals=(("0", 1, times),))


@pytest.mark.parametrize(
    ("late", "period", "rounds", "last", "reported"),
    [
        (0.5, 1.0, 15, 1.0, False),
        (0.5, 1.0, 16, 1.0, True),
        (0.24, 1.0, 60, 1.0, False),  # of the time of a round
        (0.255, 1.0, 60, 1.0, True),
        (0.019, 0.05, 200, 1.0, False),
        (0.021, 0.05, 200, 1.0, True),
        (0.04, 0.1, 24, 1.0, False),  # 0.96 s in all
        (0.04, 0.1, 26, 1.0, True),
        (0.5, 1.0, 200, 0.85, False),
        (0.5, 1.0, 200, 0.9, True),
    ],
)
def test_how_late_a_rank_has_to_be(late: float, period: float, rounds: int, last: float, reported: bool) -> None:
    trace = traced(STEP, seen=[paced(rank, late, period, rounds, last) for rank in (0, 1)])
    assert bool(kinds(trace)) == reported
