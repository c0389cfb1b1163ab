"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, traced
from learning import STEP, sites_of_only

from backprobe.records import NoGradient

NONLEAF = NoGradient("nonleaf", at(21), None, "", "x", 3, at(20))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "nonleaf-grad": (traced(STEP, seen=[NONLEAF]), [("cut", 20), ("cut", 21)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
