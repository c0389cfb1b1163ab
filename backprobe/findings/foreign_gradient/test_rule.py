"""The rule on hand-written ledgers."""

from __future__ import annotations

import pytest
from handmade import kinds, traced
from learning import STEP, sites_of_only
from ledgers import CLEARED, USED, event, gave, optimizer, row

from backprobe import Trace
from backprobe.records import LedgerRow
from backprobe.records import ledger as events

OTHER = event(events.OTHER_STEP, 41, 1)
#: Call 40 is made for optimizer 1 and reaches the parameters of optimizer 0 too.
FOREIGN = (CLEARED, gave(40, 0, 1), OTHER, gave(50, 0), USED)


def run(*rows: LedgerRow) -> Trace:
    return traced(STEP, seen=[optimizer(0), optimizer(1, "Adam"), *rows])


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "foreign-gradient": (
        run(row(*FOREIGN)),
        [("stepped", 33), ("foreign", 40), ("used", 41), ("backward", 50), ("cleared", 31), ("optimizer", 5)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_what_is_no_foreign_gradient() -> None:
    shared = event(events.SHARED_STEP, 41, 1)
    for rows in (
        [row(CLEARED, gave(40, 0, 1), OTHER, CLEARED, gave(50, 0), USED)],  # cleared in between
        [row(CLEARED, gave(40, 0, 1), gave(50, 0), OTHER, USED)],  # both calls before both steps
        [row(CLEARED, gave(40, 0, 1), OTHER, gave(40, 0, 1), OTHER, USED)],  # the other optimizer steps more often
        [row(CLEARED, gave(40, 0, 1), shared, gave(50, 0), USED)],  # the other optimizer holds it too
        [row(CLEARED, gave(40, 0, 1), OTHER, gave(50, 0, 2), event(events.OTHER_STEP, 51, 2), USED)],  # a shared trunk
        [row(*FOREIGN, periods=2)],
        # A trunk that both losses share: the head of this optimizer gets gradients of its own loss only.
        [row(*FOREIGN), row(CLEARED, OTHER, gave(50, 0), USED, names=("head.weight",))],
    ):
        assert kinds(run(*rows)) == []
