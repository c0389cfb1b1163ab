"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import EqualStates

EQUAL_STATES = EqualStates("q", 64, 14, 3, (at(11), at(12)), (at(21), at(22)), at(23), (at(30),), (at(40),))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "next-states-equal": (
        traced(STEP, seen=[EQUAL_STATES]),
        [("made", 12), ("made", 11), ("called", 22), ("called", 21), ("returned", 30), ("stored", 40)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
    found = only(trace)
    assert (found.severity, found.confidence, found.module, found.step) == ("warning", "likely", "q", 3)
    assert found.title == "in all 14 batches that were compared, the next states are equal to the states bit for bit"


def test_lines_that_several_may_be_are_candidates_only() -> None:
    seen = dataclasses.replace(EQUAL_STATES, returned=(at(30), at(31)), stored=(at(40), at(41)), made=(at(11), at(11)))
    found = only(traced(STEP, seen=[seen]))
    assert [(one.role, one.site.line) for one in found.sites] == [("made", 11), ("called", 22), ("called", 21)]
    assert len(found.evidence["candidates"]) == 4


def test_one_finding_for_a_module() -> None:
    other = dataclasses.replace(EQUAL_STATES, first=9, compared=at(50))
    assert only(traced(STEP, seen=[EQUAL_STATES, other])).step == 3
