"""The rule on hand-written records."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe import Trace
from backprobe.records import ScaledGradients
from backprobe.traces import TracedStep

SCALED = ScaledGradients("SGD", 0, 12, 65536.0, at(33), at(32), at(6))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "scaled-gradient-used": (traced(STEP, seen=[SCALED]), [("cause", 33), ("failed", 32), ("optimizer", 6)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_factor_is_named() -> None:
    found = only(FIRES["scaled-gradient-used"][0])
    assert found.title.startswith("SGD steps with gradients that are 65,536 times too large, from step 0 on")
    assert (found.severity, found.confidence, found.evidence["scale"]) == ("warning", "certain", 65536.0)


def test_a_loss_that_becomes_nan_makes_it_an_error() -> None:
    trace = traced(STEP, seen=[SCALED])
    (step,) = trace.steps
    bad = replace(step.record, index=1, loss=math.nan)
    assert only(Trace([step, TracedStep(bad, [])], trace.facts)).severity == "error"
