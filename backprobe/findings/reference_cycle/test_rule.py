"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, kinds, leaf, run, traced
from learning import one_finding

from backprobe.records import (
    GradientCycle,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


CYCLE = GradientCycle(at(71), ("weight",))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "reference-cycle": (traced(STEP, seen=[CYCLE]), [("held", 71)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])


def test_a_cycle_of_unknown_origin_is_not_reported() -> None:
    assert kinds(traced(STEP, seen=[dataclasses.replace(CYCLE, site=None)])) == []
