"""The rule on hand-written records."""

from __future__ import annotations

from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import PaddingRowUsed


def test_one_run_one_finding() -> None:
    trace = traced(STEP, seen=[PaddingRowUsed(("users.weight", "items.weight"), 0, 0.25, 1, (at(7), at(8)))])
    assert sites_of_only("part-never-learns", trace) == [("defined", 7), ("defined", 8)]
    assert "row 0 of users.weight, items.weight get no gradient" in only(trace).title
    assert only(trace).severity == "info" and "25.0% of the lookups" in only(trace).title
