"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import FreezeAttempt

ATTEMPT = FreezeAttempt("head", "Linear", "requires_grad", ("head.weight", "head.bias"), 4, (at(7),))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "freeze-without-effect": (traced(STEP, seen=[ATTEMPT]), [("cause", 7)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_modules_that_one_line_meets_are_one_finding() -> None:
    other = replace(ATTEMPT, owner="body", parameters=("body.weight",))
    found = only(traced(STEP, seen=[ATTEMPT, other]))
    assert found.title.startswith(
        "requires_grad = False does not freeze the modules head, body: a module has the method"
    )
    assert found.parameters == ("head.weight", "head.bias", "body.weight")


def test_a_misspelt_attribute_of_a_parameter() -> None:
    seen = FreezeAttempt("head.weight", "", "require_grad", ("head.weight",), 0, (at(7), at(9)))
    found = only(traced(STEP, seen=[seen]))
    assert found.title == (
        "require_grad = False does not freeze the parameter head.weight: the attribute is called requires_grad; it is "
        "still trained"
    )
    assert (found.module, found.sites) == ("head", ())
    assert found.evidence["candidates"] == ["train.py:7", "train.py:9"]
