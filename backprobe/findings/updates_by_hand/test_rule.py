"""The rule on hand-written records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from handmade import at, call, kinds, only, parameter, traced
from learning import sites_of_only

from backprobe import Trace
from backprobe.records import ClimbingUpdates, Root

CLIMBING = ClimbingUpdates(("0.bias", "0.weight"), "NllLossBackward0", 24, 0.01, at(19), at(16))


def climbing(losses: Sequence[float]) -> Trace:
    """Return a run whose updates climb, with these losses."""
    calls = [call(index=i, roots=(Root(None, (), "float32", loss, None),)) for i, loss in enumerate(losses)]
    return traced(*calls, seen=[CLIMBING], parameters=[parameter("0.weight"), parameter("0.bias")])


RISING = climbing([1 + 0.1 * i for i in range(20)])

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"update-climbs": (RISING, [("stepped", 19), ("backward", 16)])}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_title_has_the_factor_and_the_losses() -> None:
    finding = only(RISING)
    assert finding.title == (
        "the updates by hand add 0.01 times the gradient to the weights, which raises the loss: from 1.2 to 2.7 (means "
        "of the first and the last quarter of the steps)"
    )
    assert finding.confidence == "likely" and finding.parameters == ("0.weight", "0.bias")
    assert kinds(climbing([1.0] * 15 + [float("inf")] * 5)) == ["update-climbs"]


def test_losses_that_do_not_rise() -> None:
    assert kinds(climbing([3 - 0.1 * i for i in range(20)])) == []
    assert kinds(climbing([1.0, 1.4, 0.7, 1.2] * 5)) == []
    assert kinds(climbing([1 + 0.1 * i for i in range(12)])) == []  # too few


def test_how_many_losses_have_to_be_higher() -> None:
    """Pairs of the first and the last four losses: 15 of 16 are higher, and 14."""
    between = [2.0] * 8
    assert kinds(climbing([1.0, 1.1, 1.2, 3.0, *between, 4.0, 4.1, 4.2, 2.9])) == ["update-climbs"]
    assert kinds(climbing([1.0, 1.1, 1.2, 3.0, *between, 4.0, 4.1, 2.9, 2.9])) == []
