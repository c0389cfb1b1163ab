"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    Retained,
)

RETAINED = Retained("losses", "a list", at(70), "", 7)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "graph-retained": (traced(STEP, seen=[RETAINED]), [("held", 70)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_what_keeps_graphs_without_a_name_or_line() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(RETAINED, holder="", site=None)]))
    assert found.title.startswith("a list keeps the graphs of earlier steps alive: 7")
    assert (found.confidence, found.tensor, found.sites) == ("likely", None, ())
