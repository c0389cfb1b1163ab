"""The rule on hand-written ledgers."""

from __future__ import annotations

import pytest
from handmade import kinds, only
from learning import sites_of_only
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, ZEROED, ZEROS, gave, ledger, row

TRAINED = row(CLEARED, gave(32), USED, names=("b.weight",), periods=12)
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "frozen-parameter-moves": (
        ledger(TRAINED, row(CLEARED, gave(32), ZEROED, ZEROS)),
        [("zeroed", 35), ("stepped", STEPPED_LINE), ("optimizer", MADE_LINE)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_frozen_parameter_whose_gradient_stays_zero() -> None:
    assert only(ledger(TRAINED, row(ZEROS, frozen=True))).kind == "frozen-parameter-moves"


def test_what_is_no_frozen_parameter_that_moves() -> None:
    for rows in (
        [TRAINED, row(CLEARED, gave(32), ZEROED, ZEROS, moved=0, kept=5)],  # it stays as it was
        [TRAINED, row(CLEARED, gave(32), ZEROED, ZEROS, periods=2)],
        [row(CLEARED, gave(32), ZEROED, ZEROS)],  # all parameters
        [TRAINED, row(ZEROED, gave(32), ZEROS)],  # the loss gives zeros
        [TRAINED, row(ZEROED, gave(32), USED)],  # zero_grad(set_to_none=False)
    ):
        assert kinds(ledger(*rows)) == []
