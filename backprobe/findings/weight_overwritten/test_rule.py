"""The rule on hand-written ledgers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only
from ledgers import CLEARED, STEPPED_LINE, USED, event, gave, ledger, row

from backprobe.records import MergedUpdates
from backprobe.records import ledger as events

WRITTEN = event(events.WRITTEN, 40)
RESTORED = event(events.RESTORED, 44)
MERGED = MergedUpdates(
    "base.weight", ("up", "down"), 5, 200, 360, 800, (at(35),), True, replace(at(76), text="model.eval()"), at(93)
)
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "weight-overwritten": (
        ledger(row(CLEARED, gave(32), WRITTEN, gave(42), USED)),
        [("mutated", 40), ("backward", 32), ("second", 42), ("stepped", STEPPED_LINE)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_line_that_was_not_observed() -> None:
    assert only(FIRES["weight-overwritten"][0]).confidence == "certain"
    assert only(ledger(row(CLEARED, gave(32), event(events.WRITTEN), gave(42), USED))).confidence == "likely"


def test_what_is_no_overwritten_weight() -> None:
    for rows in (
        [row(CLEARED, gave(32), WRITTEN, gave(42), RESTORED, USED)],  # SAM
        [row(CLEARED, WRITTEN, gave(32), USED)],  # weights are clamped after each step
        [row(CLEARED, gave(32), WRITTEN, USED)],  # weight decay by hand before the step
        [row(CLEARED, gave(32), event(events.SHARED_STEP, 41, 1), WRITTEN, gave(42), USED)],
        [row(CLEARED, gave(32), WRITTEN, gave(42), USED, periods=2)],
        [row(CLEARED, gave(32), event(events.MOVED_IN_STEP), gave(42), USED)],
    ):
        assert [kind for kind in kinds(ledger(*rows)) if kind == "weight-overwritten"] == []


def test_an_update_that_stays_in_a_frozen_weight() -> None:
    trace = traced(STEP, seen=[MERGED])
    assert sites_of_only("weight-overwritten", trace) == [("mutated", 35), ("evaluated", 76), ("stepped", 93)]
    found = only(trace)
    assert (found.confidence, found.step, found.parameters) == ("likely", 200, ("base.weight",))
    assert found.title == (
        "base.weight is frozen, and the product of up and down is added to it 5 times and never subtracted before "
        "training goes on"
    )


def test_frozen_weights_of_several_layers_are_one_finding() -> None:
    other = replace(MERGED, parameter="other.weight", factors=("b", "a"), called=at(80))
    found = only(traced(STEP, seen=[MERGED, other]))
    assert found.parameters == ("base.weight", "other.weight")
    assert found.title.startswith(
        "base.weight, other.weight are frozen, and products such as that of up and down are added to them 5 times"
    )


def test_lines_that_may_add_an_update() -> None:
    unseen = replace(MERGED, lines=(at(35), at(50)), exact=False, called=None)
    found = only(traced(STEP, seen=[unseen]))
    assert found.evidence["candidates"] == ["train.py:35", "train.py:50"]
    assert [(one.role, one.site.line) for one in found.sites] == [("mutated", 35), ("stepped", 93)]
    by_function = replace(MERGED, called=at(80))
    assert [one.role for one in only(traced(STEP, seen=[by_function])).sites] == ["mutated", "called", "stepped"]
