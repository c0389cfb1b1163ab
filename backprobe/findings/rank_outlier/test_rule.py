"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, traced
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
