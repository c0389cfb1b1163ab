"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, call, leaf, run, traced
from learning import one_finding

from backprobe.records import (
    RankSeen,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


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
    one_finding(kind, *FIRES[kind])
