"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import CancellingDifference

RATIO = CancellingDifference("sub", at(21), at(20), ("logp", "old_logp"), 1, 7, 0)
UNNAMED = CancellingDifference("sub", at(21), None, ("", ""), 1, 3, 4)
QUOTIENT = CancellingDifference("div", at(21), at(21), ("p", "q"), 1, 3, 4)
DISTANCE = CancellingDifference("mse_loss", at(21), at(19), ("teacher", "student"), 0, 3, 4)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"gradient-cancels": (traced(STEP, seen=[RATIO]), [("cause", 20), ("cause", 21)])}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_what_is_zero_is_told() -> None:
    found = only(FIRES["gradient-cancels"][0])
    assert found.title == (
        "logp - old_logp is 0 in all 7 observed steps: both sides are computed with a graph from the same parameters, "
        "so the gradient of this term cancels"
    )
    assert (found.step, found.evidence) == (0, {"op": "sub", "steps": 7})
    assert found.advice.startswith("Compute old_logp once, before the updates")


@pytest.mark.parametrize(
    ("seen", "title", "advice", "lines"),
    [
        (UNNAMED, "a difference of two tensors is 0 in all 3", "Compute the old or reference side once", [21]),
        (QUOTIENT, "p / q is 1 in all 3", "Compute q once", [21]),
        (
            DISTANCE,
            "mse_loss compares teacher and student, which are the same in all 3",
            "Compute teacher once",
            [19, 21],
        ),
    ],
)
def test_other_comparisons(seen: CancellingDifference, title: str, advice: str, lines: list[int]) -> None:
    found = only(traced(STEP, seen=[seen]))
    assert found.title.startswith(title) and (found.advice or "").startswith(advice)
    assert [one.site.line for one in found.sites] == lines


def test_two_terms_with_one_value() -> None:
    divergence = CancellingDifference("sub", at(23), at(20), ("old_logp", "logp"), 0, 7, 0)
    found = only(traced(STEP, seen=[RATIO, divergence, RATIO]))
    assert [one.site.line for one in found.sites] == [20, 21, 23]


def test_long_expressions_are_left_out() -> None:
    seen = CancellingDifference("kl_div", at(21), at(20), ("f(x)" * 20, "y"), 1, 3, 4)
    assert only(traced(STEP, seen=[seen])).title.startswith("kl_div compares two tensors that are the same in all 3")


def test_nothing_without_such_a_term() -> None:
    assert not traced(STEP).findings
