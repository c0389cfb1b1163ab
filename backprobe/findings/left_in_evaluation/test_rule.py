"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import LeftInEvaluation

LEFT = LeftInEvaluation("Net", 40, 60, 40, ("BatchNorm2d", "Dropout"), (at(12),))
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"left-in-evaluation-mode": (traced(STEP, seen=[LEFT]), [("cause", 12)])}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_lines_that_it_could_be_are_candidates() -> None:
    found = only(traced(STEP, seen=[LEFT]))
    assert (found.confidence, found.step) == ("likely", 40) and "BatchNorm2d and Dropout do not behave" in found.title
    assert found.evidence["candidates"] == ["train.py:12"]
    several = only(traced(STEP, seen=[replace(LEFT, calls=(at(12), at(20)))]))
    assert [site.site.line for site in several.sites] == [12, 20]
