"""The rule on hand-written ledgers."""

from __future__ import annotations

import pytest
from handmade import kinds, only
from learning import sites_of_only
from ledgers import CLEARED, STEPPED_LINE, USED, event, gave, ledger, row

from backprobe.records import ledger as events

WRITTEN = event(events.WRITTEN, 40)
RESTORED = event(events.RESTORED, 44)
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
