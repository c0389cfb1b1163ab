"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import EqualUnits

HIDDEN = EqualUnits("body.0.weight", "Linear", 64, 1, 0, 130, 9, True, 0.1, (at(12),), True)
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"units-never-differ": (traced(STEP, seen=[HIDDEN]), [("cause", 12)])}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_layer_whose_line_was_observed() -> None:
    found = only(traced(STEP, seen=[HIDDEN]))
    assert (found.confidence, found.step, found.module) == ("certain", 0, "body.0")
    assert found.title.startswith("the 64 rows of body.0.weight are equal in all 9 examined steps")
    assert found.evidence == {"rows": 64, "looks": 9, "last": 130, "initial_value": 0.1}


def test_a_line_that_was_not_observed() -> None:
    found = only(traced(STEP, seen=[replace(HIDDEN, observed=False)]))
    assert found.confidence == "likely"
    assert found.evidence["candidates"] == ["train.py:12"]
    assert only(traced(STEP, seen=[replace(HIDDEN, exact=False)])).confidence == "likely"
    unknown = replace(HIDDEN, given=(), observed=False, value=None)
    assert only(traced(STEP, seen=[unknown])).sites == ()


def test_several_weights_of_a_line_are_one_finding() -> None:
    gates = replace(HIDDEN, parameter="rnn.weight_ih_l0", owner="LSTM", rows=8, blocks=4)
    found = only(traced(STEP, seen=[gates, replace(gates, parameter="rnn.weight_hh_l0")]))
    assert found.parameters == ("rnn.weight_ih_l0", "rnn.weight_hh_l0")
    assert found.title.startswith("the rows of the 4 blocks of rnn.weight_ih_l0, rnn.weight_hh_l0 are equal")
