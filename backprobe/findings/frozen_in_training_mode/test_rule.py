"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only

from backprobe.records import FrozenInTraining, FrozenStatistics

SWITCHED = FrozenInTraining(
    "teacher", "ResNet", (), 50, 249, 50, 7, "BatchNorm2d", 0.84, 1, True, (at(10),), (at(17),), (at(5),), at(12)
)
DRIFTED = replace(SWITCHED, evaluation=0, evaluated=())
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "frozen-in-training-mode": (
        traced(STEP, seen=[SWITCHED]),
        [("cause", 17), ("evaluated", 10), ("frozen", 5), ("called", 12)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_title_says_what_training_mode_does() -> None:
    found = only(traced(STEP, seen=[SWITCHED]))
    assert found.title == (
        "teacher is frozen, but in training mode since step 50 (it was in evaluation mode in 50 steps before): "
        "7 BatchNorm2d layers normalise by the statistics of each batch, and the running statistics moved by up to 0.8 "
        "standard deviations in 200 steps; dropout in 1 layer makes the outputs random"
    )
    assert found.severity == "warning" and found.evidence["candidates"] == ["train.py:17"]
    never = only(traced(STEP, seen=[replace(SWITCHED, evaluation=0, moved=0.05)]))
    assert "(although the script calls eval() on it)" in never.title and "statistics were updated in 200" in never.title


def test_dropout_alone_is_information() -> None:
    found = only(traced(STEP, seen=[replace(SWITCHED, norms=0, others=("aunt",))]))
    assert found.severity == "info" and found.title.startswith("teacher, aunt are frozen, but in training mode")
    assert found.title.endswith("before): dropout in 1 layer makes the outputs random")


def test_without_a_call_of_train_the_line_that_froze_it_is_the_cause() -> None:
    found = only(traced(STEP, seen=[replace(SWITCHED, switched=(), evaluated=())]))
    assert [(one.role, one.site.line) for one in found.sites] == [("cause", 5), ("called", 12)]


def test_statistics_of_the_same_part_are_not_reported_twice() -> None:
    moving = FrozenStatistics(("teacher.1",), "BatchNorm2d", 50, 249, 0.5, True, at(12), (at(5),), at(17))
    assert kinds(traced(STEP, seen=[SWITCHED, moving])) == ["frozen-in-training-mode"]


def test_a_part_that_was_never_in_evaluation_mode_is_left_to_the_statistics() -> None:
    assert kinds(traced(STEP, seen=[DRIFTED])) == ["frozen-buffer-changes"]


@pytest.mark.parametrize(("moved", "named"), [(0.19, False), (0.21, True)])
def test_how_far_statistics_have_to_move_for_the_title(moved: float, named: bool) -> None:
    title = only(traced(STEP, seen=[replace(SWITCHED, moved=moved)])).title
    assert ("moved by up to" in title) == named
