"""The rule on hand-written ledgers."""

from __future__ import annotations

from handmade import at, kinds, only
from learning import sites_of_only
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, USED_AGAIN, gave, ledger, row

FRESH = row(CLEARED, gave(32), USED, names=("b.weight",), periods=12)


def test_a_frozen_parameter_that_keeps_its_gradient() -> None:
    trace = ledger(FRESH, row(USED_AGAIN, frozen=True, frozen_at=(at(20),)))
    assert sites_of_only("stale-gradient", trace) == [
        ("stepped", STEPPED_LINE),
        ("frozen", 20),
        ("optimizer", MADE_LINE),
    ]
    assert only(trace).parameters == ("a.weight",) and "is frozen" in only(trace).title


def test_several_lines_that_may_have_frozen_it_are_candidates() -> None:
    found = only(ledger(FRESH, row(USED_AGAIN, frozen=True, frozen_at=(at(20), at(21)))))
    assert [site.role for site in found.sites] == ["stepped", "optimizer"]
    assert found.evidence["candidates"] == ["train.py:20", "train.py:21"]


def test_a_parameter_that_is_not_frozen() -> None:
    assert "gets no gradient any more" in only(ledger(FRESH, row(USED_AGAIN))).title


def test_what_is_no_stale_gradient() -> None:
    for rows in (
        [FRESH, row(USED_AGAIN, periods=2)],  # too few periods
        [FRESH, row(USED_AGAIN, moved=0, kept=5)],  # the weight stays as it was
        [row(USED_AGAIN)],  # no backward call gives any parameter a gradient: the script writes them itself
        [FRESH, row(USED_AGAIN, periods=3), row(CLEARED, gave(32), USED, periods=9)],  # the exception
    ):
        assert kinds(ledger(*rows)) == []
