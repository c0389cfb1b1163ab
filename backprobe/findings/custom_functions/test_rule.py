"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, leaf, only, run, traced
from learning import one_finding

from backprobe.records import (
    FunctionChecked,
)

STEP = call(run("SumBackward0", 1, op="sum"), leaf("weight"))


CHECKED = FunctionChecked("Mine", "", at(11), at(40), "gradient", 0, 1.0, 2.0, "")

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "wrong-backward": (traced(STEP, seen=[CHECKED], ask="functions"), [("applied", 11), ("backward", 40)]),
    "wrong-double-backward": (
        traced(STEP, seen=[dataclasses.replace(CHECKED, what="second derivative")], ask="functions"),
        [("applied", 11), ("backward", 40)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])


def test_a_gradient_that_is_meant_is_information() -> None:
    meant = dataclasses.replace(CHECKED, why="the forward is flat: a straight-through estimate")
    found = only(traced(STEP, seen=[meant], ask="functions"))
    assert (found.severity, found.confidence) == ("info", "likely")
    assert "disagrees with finite differences: the forward is flat" in found.title
