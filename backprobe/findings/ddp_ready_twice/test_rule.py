"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from failing import NODES, TWICE, failed
from handmade import at, call, kinds, only, roles, traced
from learning import sites_of_only

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "ddp-ready-twice": (traced(failed(TWICE)), [("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_two_calls_that_reach_the_same_parameters() -> None:
    first = call(*NODES, index=0, step=0, site=at(89))
    found = only(traced(first, failed(TWICE, 1, step=0)))
    assert (found.confidence, found.parameters) == ("certain", ("weight",))
    assert roles(found) == [("failed", 90), ("first", 89)]
    assert only(traced(first, failed(TWICE, 1, step=1))).confidence == "likely"
    assert kinds(traced(first, failed(TWICE, 1, step=0, inside=0))) == []
