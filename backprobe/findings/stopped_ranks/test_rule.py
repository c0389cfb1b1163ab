"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    RankSeen,
    RankWait,
)

WAIT = RankWait("all_reduce", at(60), 50.0, 4.0, "never")

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "rank-failed": (
        traced(
            STEP, seen=[RankSeen(0, 100, signal=15), RankSeen(1, 101, error="ValueError: bad batch", raised=at(61))]
        ),
        [("raised", 61)],
    ),
    "rank-desync": (traced(STEP, seen=[RankSeen(0, 100, (WAIT,))]), [("waiting", 60)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
