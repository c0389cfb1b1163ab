"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    FunctionChecked,
)

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
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_gradient_that_is_meant_is_information() -> None:
    meant = dataclasses.replace(CHECKED, why="the forward is flat: a straight-through estimate")
    found = only(traced(STEP, seen=[meant], ask="functions"))
    assert (found.severity, found.confidence) == ("info", "likely")
    assert "disagrees with finite differences: the forward is flat" in found.title


def test_two_calls_before_a_backward() -> None:
    pair = dataclasses.replace(CHECKED, why="overwritten", again=at(12), state=at(35))
    found = only(traced(STEP, seen=[pair], ask="functions"))
    assert [(one.role, one.site) for one in found.sites] == [
        ("applied", at(11)),
        ("applied", at(12)),
        ("cause", at(35)),
        ("backward", at(40)),
    ]
    assert (found.kind, found.confidence) == ("wrong-backward", "certain") and "applied twice" in found.title


def test_two_calls_are_reported_without_a_check() -> None:
    pair = dataclasses.replace(CHECKED, why="overwritten", again=at(11), state=at(35), step=150)
    found = only(traced(STEP, seen=[pair]))
    assert [one.role for one in found.sites] == ["applied", "cause", "backward"]  # one line applies it twice
    assert (found.kind, found.step) == ("wrong-backward", 150)


def test_finite_differences_need_the_check() -> None:
    assert not traced(STEP, seen=[CHECKED]).findings
