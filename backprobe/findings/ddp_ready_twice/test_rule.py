"""The rule on hand-written records."""

from __future__ import annotations

import pytest
from handmade import at, call, kinds, leaf, only, raised, roles, run, traced
from learning import one_finding

from backprobe.records import (
    BackwardCall,
)

NODES = (
    run("SumBackward0", 1, op="sum", line=13),
    run("LogBackward0", 2, op="log", line=12, module="head"),
    run("MulBackward0", 3, op="mul", line=11),
    leaf("weight"),
)


def wrong(text: str = "no backward here", index: int = 0, node: int = 2, **more) -> BackwardCall:
    return call(*NODES, index=index, raised=raised(text, node, at(30)), **more)


TWICE = "Expected to mark a variable ready only once. Parameter at index 0 with name module.weight has been marked"

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "ddp-ready-twice": (traced(wrong(TWICE)), [("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    one_finding(kind, *FIRES[kind])


def test_two_calls_that_reach_the_same_parameters() -> None:
    first = call(*NODES, index=0, step=0, site=at(89))
    found = only(traced(first, wrong(TWICE, 1, step=0)))
    assert (found.confidence, found.parameters) == ("certain", ("weight",))
    assert roles(found) == [("failed", 90), ("first", 89)]
    assert only(traced(first, wrong(TWICE, 1, step=1))).confidence == "likely"
    assert kinds(traced(first, wrong(TWICE, 1, step=0, inside=0))) == []
