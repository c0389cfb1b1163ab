"""The rule on hand-written ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, USED_AGAIN, gave, ledger, optimizer, row

from backprobe import Trace
from backprobe.records import LedgerChanges, WeightChange

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


def in_part(*shares: Sequence[float], dtype: str = "bfloat16", change: WeightChange | None = None) -> Trace:
    """A trace of parameters all of which move, with the shares of elements that measured steps left as they were."""
    known = change or WeightChange(1, 2.0, 0.1, 0.1, 0.0, 0.0)
    rows = [
        row(CLEARED, gave(32), USED, names=(f"{i}.weight",), periods=9, moved=9, dtype=dtype, cast_at=(at(4),))
        for i in range(len(shares))
    ]
    changes = [
        LedgerChanges(f"{i}.weight", rows[0].optimizer, tuple(replace(known, rounded=share) for share in mine))
        for i, mine in enumerate(shares)
    ]
    return traced(STEP, seen=[optimizer(), *rows, *changes])


def test_most_elements_of_most_parameters_stay_as_they_are() -> None:
    found = only(in_part([0.9] * 4, [0.7, 0.8, 0.8, 0.9], [0.1] * 4))
    assert found.parameters == ("0.weight", "1.weight") and found.title.startswith("85% of the elements of 0.weight, 1")
    assert found.title.endswith("was rounded away in bfloat16") and found.sites[0].site == at(4)
    assert found.evidence["rounded_share"] == pytest.approx(0.85)


def test_what_is_no_rounding_of_most_elements() -> None:
    for trace in (
        in_part([0.9] * 4, [0.1] * 4),  # not most parameters
        in_part([0.9] * 3),  # too few steps
        in_part([0.5] * 9),
        in_part([0.9] * 9, dtype="float32"),
        in_part([0.9] * 9, change=WeightChange(1, 2.0, 0.1)),  # an optimizer whose formula is not known
        in_part([0.9] * 9, change=WeightChange(1, 2.0, 0.1, 0.1, 0.0, 0.0, explained=False)),
    ):
        assert kinds(trace) == []


def test_eight_steps_without_a_change_are_enough() -> None:
    kept = row(CLEARED, gave(32), USED, periods=9, moved=0, kept=8, dtype="float16")
    assert kinds(ledger(kept)) == ["update-rounds-away"]
