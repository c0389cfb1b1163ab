"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import INF, at, bad_root, call, kinds, leaf, only, run, traced
from learning import STEP, sites_of_only

from backprobe.records import LossGrowth, NegativeRate, RaisedRate, ScheduleSeen, ZeroRate

ZERO_RATE = ZeroRate("AdamW", 1, 1, 61, 139, 200, 0.0, 4e-3, True, "LambdaLR", at(9), 1, at(20), at(19))
NEGATIVE = NegativeRate("Adam", 240, 300, 1, 1, -2e-3, 4e-3, "LambdaLR", at(9), 1, at(20), at(19))
GROWTH = LossGrowth(95, 1.1, 157, 2e36, (16.0, 5e5, 3e11, 2e20, 8e30))
RAISED_RATE = RaisedRate("SGD", 0.02, ((0, 0.02), (50, 0.033), (95, 0.051), (96, 0.052), (157, 0.095)), None, at(19))
EXPONENTIAL = ScheduleSeen(
    *("ExponentialLR", "SGD", 500, 500, 0.02, 2.9, 2.9, None),
    *(0, None, True, True, at(20), at(30), at(19)),
)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "learning-rate-zero": (traced(STEP, seen=[ZERO_RATE]), [("cause", 9), ("cause", 20), ("optimizer", 19)]),
    "learning-rate-raised": (
        traced(STEP, seen=[RAISED_RATE, EXPONENTIAL, GROWTH]),
        [("cause", 20), ("stepped", 30), ("optimizer", 19)],
    ),
    "learning-rate-negative": (traced(STEP, seen=[NEGATIVE]), [("cause", 9), ("cause", 20), ("optimizer", 19)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_title_has_rates_and_steps() -> None:
    finding = only(traced(STEP, seen=[ZERO_RATE]))
    assert finding.title == (
        "the learning rate of AdamW is 0 from step 61 on, for at least 139 steps, after a rate of up to 0.004: no "
        "weight changes"
    )
    assert (finding.severity, finding.confidence, finding.step) == ("warning", "likely", 61)
    assert only(traced(STEP, seen=[replace(ZERO_RATE, scheduled=None)])).confidence == "certain"


def test_a_part_is_no_warning_and_an_inferred_line_is_likely() -> None:
    assert only(traced(STEP, seen=[replace(ZERO_RATE, of=2)])).severity == "info"
    assert only(traced(STEP, seen=[replace(ZERO_RATE, scheduled=None, returns=2)])).confidence == "likely"
    assert only(traced(STEP, seen=[replace(ZERO_RATE, scheduled=None, unchanged=None)])).confidence == "likely"
    assert kinds(traced(STEP, seen=[replace(ZERO_RATE, unchanged=False)])) == []


def test_a_rate_of_zero_from_the_start() -> None:
    seen = replace(ZERO_RATE, step=0, highest=0.0, scheduler="", given=None, scheduled=None)
    finding = only(traced(STEP, seen=[seen]))
    assert finding.title == "the learning rate of AdamW is 0 in every step: no weight changes"
    assert [site.role for site in finding.sites] == ["cause"]
    assert finding.advice == "Give the optimizer a learning rate above 0."


def test_a_scheduler_that_is_stepped_for_each_micro_batch() -> None:
    made = ("LambdaLR", "AdamW", 400, 100, 4e-3, 0.0, 4e-3, 26, 0, None, True, True, at(20), at(30), at(19))
    found = only(traced(STEP, seen=[ZERO_RATE, ScheduleSeen(*made)]))
    assert (found.sites[0].role, found.sites[0].site) == ("stepped", at(30))
    assert "LambdaLR was stepped 400 times in 100 steps" in found.title and "accumulated" in found.advice
    once = replace(ScheduleSeen(*made), calls=100)
    sites = only(traced(STEP, seen=[ZERO_RATE, once])).sites
    assert [site.role for site in sites] == ["cause", "cause", "stepped", "optimizer"]


def test_a_rate_below_zero() -> None:
    found = only(traced(STEP, seen=[NEGATIVE]))
    assert found.title == (
        "the learning rate of Adam is below zero in 300 examined steps, first in step 240, and as low as -0.002: the "
        "optimizer climbs the loss"
    )
    assert (found.severity, found.confidence, found.step) == ("error", "likely", 240)
    assert only(traced(STEP, seen=[replace(NEGATIVE, scheduled=None)])).confidence == "certain"
    assert only(traced(STEP, seen=[replace(NEGATIVE, scheduled=None, returns=2)])).confidence == "likely"
    assert "of 1 of 2 parameter groups" in only(traced(STEP, seen=[replace(NEGATIVE, of=2)])).title


def test_a_rate_that_is_raised() -> None:
    finding = only(traced(STEP, seen=[RAISED_RATE, EXPONENTIAL, GROWTH]))
    assert finding.title == (
        "ExponentialLR raises the learning rate of SGD from 0.02 to 0.052 by step 95; from there on the loss grows for "
        "62 steps, from 1.1 to 2e+36, and then overflows"
    )
    assert (finding.severity, finding.confidence, finding.step) == ("error", "likely", 95)
    by_hand = only(traced(STEP, seen=[replace(RAISED_RATE, assigned=at(22)), GROWTH]))
    assert by_hand.title.startswith("the script raises the learning rate")
    assert [(site.role, site.site.line) for site in by_hand.sites] == [("cause", 22), ("optimizer", 19)]


def test_values_that_overflow_follow_from_a_raised_rate() -> None:
    bad = call(run("MulBackward0", 1, op="mul"), leaf("a.weight"), roots=bad_root(INF), step=158)
    assert kinds(traced(bad, seen=[RAISED_RATE, EXPONENTIAL, GROWTH])) == ["learning-rate-raised"]
    assert kinds(traced(bad, seen=[RAISED_RATE, EXPONENTIAL])) == ["nonfinite-forward"]


@pytest.mark.parametrize(
    "seen",
    [
        [RAISED_RATE, EXPONENTIAL],
        [GROWTH],
        [GROWTH, replace(RAISED_RATE, base=0.1)],
        [GROWTH, replace(RAISED_RATE, rates=((0, 0.02), (20, 0.05), (400, 0.05)))],
        [replace(GROWTH, until=98), RAISED_RATE],
        [replace(GROWTH, last=9e3), RAISED_RATE],
        [replace(GROWTH, medians=(16.0, 5e5, 3e11, 2e20, 8e3)), RAISED_RATE],
    ],
    ids=["stays finite", "not raised", "a warm-up", "raised long before", "at once", "grows little", "falls again"],
)
def test_other_rates_and_losses_are_silent(seen: list[object]) -> None:
    assert kinds(traced(STEP, seen=seen)) == []


SLOW_GROWTH = replace(GROWTH, medians=(2.0, 3.0, 50.0, 500.0, 5e3))


@pytest.mark.parametrize(
    ("seen", "reported"),
    [
        ([replace(GROWTH, until=99), RAISED_RATE], False),
        ([replace(GROWTH, until=100), RAISED_RATE], True),
        ([replace(SLOW_GROWTH, last=1.05e4), RAISED_RATE], False),
        ([replace(SLOW_GROWTH, last=1.15e4), RAISED_RATE], True),
        ([GROWTH, replace(RAISED_RATE, base=0.052 / 1.19)], False),
        ([GROWTH, replace(RAISED_RATE, base=0.052 / 1.21)], True),
    ],
)
def test_how_far_a_rate_and_a_loss_have_to_grow(seen: list[object], reported: bool) -> None:
    assert bool(kinds(traced(STEP, seen=seen))) == reported


@pytest.mark.parametrize(("calls", "role"), [(189, "cause"), (191, "stepped")])
def test_nearly_two_calls_for_each_step_are_too_many(calls: int, role: str) -> None:
    made = ("LambdaLR", "AdamW", calls, 100, 4e-3, 0.0, 4e-3, 26, 0, None, True, True, at(20), at(30), at(19))
    assert only(traced(STEP, seen=[ZERO_RATE, ScheduleSeen(*made)])).sites[0].role == role
