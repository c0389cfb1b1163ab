"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, kinds, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    GradientCycle,
)

CYCLE = GradientCycle(at(71), ("weight",))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "reference-cycle": (traced(STEP, seen=[CYCLE]), [("held", 71)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_cycle_of_unknown_origin_is_not_reported() -> None:
    assert kinds(traced(STEP, seen=[dataclasses.replace(CYCLE, site=None)])) == []
