"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    GradientUse,
)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "gradient-not-cleared": (
        traced(STEP, seen=[GradientUse("Adam", "again", 3, at(33), at(32))]),
        [("stepped", 33), ("backward", 32)],
    ),
    "gradient-not-used": (
        traced(STEP, seen=[GradientUse("Adam", "cleared", 0, at(33), at(32), at(31), at(5))]),
        [("stepped", 33), ("cleared", 31), ("backward", 32), ("optimizer", 5)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
