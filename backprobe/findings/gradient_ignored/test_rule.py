"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import IgnoredGradient

IGNORED = IgnoredGradient(4, "RoundBackward", "quantizer", ("a.weight",), at(9), at(12), at(20))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "gradient-ignored": (traced(STEP, seen=[IGNORED]), [("backward", 9), ("applied", 12), ("failed", 20)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_function_and_its_parameters_are_named() -> None:
    found = only(traced(STEP, seen=[IGNORED]))
    assert (found.severity, found.confidence, found.step, found.module) == ("error", "certain", 4, "quantizer")
    assert found.title.startswith("the backward of Round never reads the gradient") and "a.weight" in found.title
