"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only

from backprobe.records import NegativeRate, ScheduleSeen, ZeroRate

ZERO_RATE = ZeroRate("AdamW", 1, 1, 61, 139, 200, 0.0, 4e-3, True, "LambdaLR", at(9), 1, at(20), at(19))
NEGATIVE = NegativeRate("Adam", 240, 300, 1, 1, -2e-3, 4e-3, "LambdaLR", at(9), 1, at(20), at(19))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "learning-rate-zero": (traced(STEP, seen=[ZERO_RATE]), [("cause", 9), ("cause", 20), ("optimizer", 19)]),
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
