"""The rule on hand-written ledgers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only
from learning import sites_of_only
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, USED_AGAIN, gave, ledger, row

KEPT_WEIGHT = row(CLEARED, gave(32), USED, periods=9, moved=0, kept=9, dtype="bfloat16", cast_at=(at(4),))
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "update-rounds-away": (ledger(KEPT_WEIGHT), [("cause", 4), ("stepped", STEPPED_LINE), ("optimizer", MADE_LINE)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_dtype_and_the_compared_steps_are_named() -> None:
    found = only(FIRES["update-rounds-away"][0])
    assert "in at least 9 steps with a gradient" in found.title and found.title.endswith("rounded away in bfloat16")


def test_several_casts_are_candidates() -> None:
    found = only(
        ledger(row(CLEARED, gave(32), USED, periods=9, moved=0, kept=9, dtype="float16", cast_at=(at(4), at(8))))
    )
    assert [site.role for site in found.sites] == ["stepped", "optimizer"]
    assert found.evidence["candidates"] == ["train.py:4", "train.py:8"]


def test_what_is_no_update_that_rounds_away() -> None:
    moved = row(CLEARED, gave(32), USED, first=10, last=20, periods=1, moved=1)
    for rows in (
        [row(CLEARED, gave(32), USED, periods=9, moved=0, kept=9, dtype="float32")],  # a bias before BatchNorm
        [
            row(CLEARED, gave(32), USED, periods=9, moved=0, kept=7, dtype="float16")
        ],  # two with a rate of zero, or a gradient of zeros
        [KEPT_WEIGHT, moved],
        [replace(KEPT_WEIGHT, events=(USED_AGAIN,))],
        [replace(KEPT_WEIGHT, frozen=True)],
    ):
        assert kinds(ledger(*rows)) == []
