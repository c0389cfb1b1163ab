"""The rule on hand-written ledgers."""

from __future__ import annotations

import pytest
from handmade import at, kinds, only
from learning import sites_of_only
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, USED_AGAIN, gave, ledger, row

FRESH = row(CLEARED, gave(32), USED, names=("b.weight",), periods=12)
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "stale-gradient": (
        ledger(FRESH, row(USED_AGAIN, frozen=True, frozen_at=(at(20),), frozen_observed=True)),
        [("stepped", STEPPED_LINE), ("frozen", 20), ("optimizer", MADE_LINE)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_parameters_are_named() -> None:
    found = only(FIRES["stale-gradient"][0])
    assert found.confidence == "certain" and "candidates" not in found.evidence
    assert found.parameters == ("a.weight",) and "is frozen" in found.title


def test_a_line_that_was_not_observed_is_likely() -> None:
    found = only(ledger(FRESH, row(USED_AGAIN, frozen=True, frozen_at=(at(20),))))
    assert (found.confidence, found.evidence["candidates"]) == ("likely", ["train.py:20"])


def test_several_lines_that_may_have_frozen_it_are_candidates() -> None:
    found = only(ledger(FRESH, row(USED_AGAIN, frozen=True, frozen_at=(at(20), at(21)))))
    assert [site.role for site in found.sites] == ["stepped", "optimizer"] and found.confidence == "likely"
    assert found.evidence["candidates"] == ["train.py:20", "train.py:21"]


def test_a_parameter_that_is_not_frozen() -> None:
    found = only(ledger(FRESH, row(USED_AGAIN)))
    assert "gets no gradient any more" in found.title and found.confidence == "certain"


def test_what_is_no_stale_gradient() -> None:
    for rows in (
        [FRESH, row(USED_AGAIN, periods=2)],  # too few periods
        [FRESH, row(USED_AGAIN, moved=0, kept=5)],  # the weight stays as it was
        [row(USED_AGAIN)],  # no backward call gives any parameter a gradient: the script writes them itself
        [FRESH, row(USED_AGAIN, periods=3), row(CLEARED, gave(32), USED, periods=9)],  # the exception
    ):
        assert kinds(ledger(*rows)) == []
