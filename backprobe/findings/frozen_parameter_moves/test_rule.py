"""The rule on hand-written ledgers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, ZEROED, ZEROS, gave, ledger, row

from backprobe.records import ZeroedElements

ROWS = ZeroedElements(
    "a.w",
    "AdamW",
    (0, 1, 2),
    9,
    0.3,
    0.05,
    0.0,
    "decay",
    4,
    20,
    6,
    True,
    (at(35),),
    at(STEPPED_LINE),
    at(MADE_LINE),
)
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


def test_the_line_that_cleared_a_frozen_parameter_with_zeros_before() -> None:
    before = row(ZEROED, gave(32), USED, periods=2, first=1, last=2)
    frozen = row(ZEROS, frozen=True, first=3)
    found = only(ledger(TRAINED, before, frozen))
    assert (found.sites[0].role, found.sites[0].site, found.confidence) == ("zeroed", at(35), "likely")
    other = row(replace(ZEROED, site=at(36)), gave(32), USED, periods=1, first=2, last=2)
    found = only(ledger(TRAINED, before, other, frozen))
    assert (found.sites[0].role, found.confidence) == ("stepped", "certain")


def test_what_is_no_frozen_parameter_that_moves() -> None:
    for rows in (
        [TRAINED, row(CLEARED, gave(32), ZEROED, ZEROS, moved=0, kept=5)],  # it stays as it was
        [TRAINED, row(CLEARED, gave(32), ZEROED, ZEROS, periods=2)],
        [row(CLEARED, gave(32), ZEROED, ZEROS)],  # all parameters
        [TRAINED, row(ZEROED, gave(32), ZEROS)],  # the loss gives zeros
        [TRAINED, row(ZEROED, gave(32), USED)],  # zero_grad(set_to_none=False)
    ):
        assert kinds(ledger(*rows)) == []


def test_rows_of_a_parameter() -> None:
    found = only(traced(STEP, seen=[ROWS]))
    assert [(one.role, one.site.line) for one in found.sites] == [
        ("zeroed", 35),
        ("stepped", STEPPED_LINE),
        ("optimizer", MADE_LINE),
    ]
    assert found.title == (
        "a hook sets the gradient of rows 0 to 2 of a.w to zero, but AdamW still moves them by weight decay, since "
        "step 4 or earlier: by 5% of their norm up to the end"
    )


def test_how_elements_are_named() -> None:
    for change, part in (
        ({"rows": (7,)}, "the gradient of row 7 of a.w to zero, but AdamW still moves it by"),
        ({"rows": (1, 4)}, "the gradient of 2 of 9 rows of"),
        ({"rows": (), "by_hook": False}, "the script sets the gradient of 30% of the elements of"),
        ({"share": 1.0}, "the gradient of all elements of a.w to zero"),
        ({"why": ""}, "by momentum or weight decay"),
        ({"why": "momentum"}, "by momentum,"),
        ({"moved": 2.5}, "by 2.5 times their norm"),
        ({"moved": None, "regrown": 0.75}, "75% of the weights that were zero are no longer zero"),
    ):
        assert part in only(traced(STEP, seen=[replace(ROWS, **change)])).title  # type: ignore[arg-type]


def test_several_parameters_with_the_same_lines_are_one_finding() -> None:
    found = only(traced(STEP, seen=[ROWS, replace(ROWS, parameter="b.weight", share=0.5, first=3)]))
    assert found.parameters == ("a.w", "b.weight") and found.step == 3
    assert "up to 50% of the elements of a.w, b.weight" in found.title
