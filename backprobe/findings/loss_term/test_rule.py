"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import OPTIMIZER, STEP, lost, reached, sites_of_only

from backprobe.records import LostTerm


def term(how: str) -> LostTerm:
    return LostTerm(how, (at(10), at(12)), at(20), ("a.weight",), 2)


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "loss-term-without-graph": (
        traced(STEP, seen=[term("item")], parameters=reached("a.weight")),
        [("cut", 10), ("cut", 12), ("term", 20)],
    )
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize(("how", "why"), [("no_grad", "gradient mode was off"), ("item", "item left the graph")])
def test_the_reason_is_named(how: str, why: str) -> None:
    trace = traced(STEP, seen=[term(how)], parameters=reached("a.weight"))
    found = only(trace)
    assert f"because {why}" in found.title and found.title.endswith("to a.weight")
    assert (found.step, found.parameters, found.evidence) == (2, ("a.weight",), {"op": how})


def test_parameters_without_any_gradient_are_reported_instead() -> None:
    parameters = [*reached("a.weight"), *lost("b.weight")]
    assert kinds(traced(STEP, seen=[term("item"), OPTIMIZER], parameters=parameters)) == ["none-grad"]


def test_a_derivative_is_no_term_of_its_own() -> None:
    seen = replace(term("autograd.grad"), is_derivative=True)
    found = only(traced(STEP, seen=[seen], parameters=reached("a.weight")))
    assert found.title == (
        "a derivative in the loss is a constant, because autograd.grad was called without create_graph=True: it gives "
        "no gradient to a.weight"
    )
    assert "create_graph=True" in found.advice
