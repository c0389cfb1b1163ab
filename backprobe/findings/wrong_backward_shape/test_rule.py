"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from failing import NODES
from handmade import at, call, kinds, leaf, raised, run, traced
from learning import sites_of_only

SHAPE = "Function HalfBackward returned an invalid gradient at index 0 - got [2] but expected [3]"


HALF = (run("SumBackward0", 1, op="sum", line=13), run("HalfBackward", 2, op="Function.apply", line=12), leaf("weight"))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "wrong-backward-shape": (
        traced(call(*HALF, raised=raised(SHAPE, 1, at(40)))),
        [("applied", 12), ("backward", 40), ("failed", 90)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_wrong_shape_is_of_a_custom_function_only() -> None:
    assert kinds(traced(call(*NODES, raised=raised(SHAPE.replace("HalfBackward", "MulBackward0"), 2)))) == [
        "backward-error"
    ]
    count = "function HalfBackward returned an incorrect number of gradients (expected 1, got 2)"
    # No node was known to run, so the rule searches for the function that the text names.
    assert kinds(traced(call(*HALF, raised=raised(count, None)))) == ["wrong-backward-shape"]
