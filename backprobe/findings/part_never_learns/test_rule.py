"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import PaddingRowUsed

PADDING_ROW = PaddingRowUsed(("users.weight", "items.weight"), 0, 0.25, 1, (at(7), at(8)))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "part-never-learns": (traced(STEP, seen=[PADDING_ROW]), [("defined", 7), ("defined", 8)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_row_and_its_share_are_named() -> None:
    trace = traced(STEP, seen=[PADDING_ROW])
    assert "row 0 of users.weight, items.weight get no gradient" in only(trace).title
    assert only(trace).severity == "info" and "25.0% of the lookups" in only(trace).title
