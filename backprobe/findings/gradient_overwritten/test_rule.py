"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, call, leaf, only, run, traced
from learning import STEP, sites_of_only

from backprobe.graphs.reaches import parameters_behind
from backprobe.records import GradientOverwritten

PARAMETERS_BEHIND = ("first.weight", "first.bias")
WRITE = GradientOverwritten(
    0, "backward", "DampedBackward", "Damped", "block", "add", PARAMETERS_BEHIND, at(50), at(31), at(30), at(90)
)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "gradient-overwritten": (
        traced(STEP, seen=[WRITE]),
        [("mutated", 50), ("applied", 31), ("shared", 30), ("failed", 90)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites
    found = only(trace)
    assert (found.severity, found.module, found.node) == ("error", "block", "DampedBackward")
    assert found.parameters == PARAMETERS_BEHIND
    assert found.title == (
        "the backward of Damped writes in place to the gradient that it gets, which add gives to two operations: "
        "the gradients of first.weight, first.bias are wrong"
    )


def test_a_hook_is_named_with_the_line_that_registered_it() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(WRITE, by="hook", made=at(40), shared=at(40))]))
    assert [(s.role, s.site.line) for s in found.sites] == [("mutated", 50), ("hook", 40), ("failed", 90)]
    assert found.title.startswith("a hook on the result of Damped writes in place")


def test_the_parameters_behind_a_node() -> None:
    runs = call(
        run("AddBackward0", 1, 3),
        run("DampedBackward", 2),
        leaf("inner.weight"),
        run("AddmmBackward0", 4, 5, None),
        leaf("first.weight"),
        leaf("first.bias"),
    ).nodes
    nodes = [one.node for one in runs]
    assert parameters_behind(nodes, 0) == ("inner.weight", "first.weight", "first.bias")
    assert parameters_behind(nodes, 1) == ("inner.weight",)
    assert parameters_behind(nodes, 5) == ("first.bias",)
