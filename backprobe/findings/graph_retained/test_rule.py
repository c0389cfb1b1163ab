"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, leaf, only, run, traced
from learning import one_finding

from backprobe.records import (
    Retained,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


RETAINED = Retained("losses", "a list", at(70), "", 7)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "graph-retained": (traced(STEP, seen=[RETAINED]), [("held", 70)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])


def test_what_keeps_graphs_without_a_name_or_line() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(RETAINED, holder="", site=None)]))
    assert found.title.startswith("a list keeps the graphs of earlier steps alive: 7")
    assert (found.confidence, found.tensor, found.sites) == ("likely", None, ())
