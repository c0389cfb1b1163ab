"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import call, only, raised, traced
from learning import OFF, STEP, sites_of_only

NO_GRAPH = call(raised=raised("element 0 of tensors does not require grad and does not have a grad_fn", None))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "grad-mode-disabled": (traced(NO_GRAPH, seen=[OFF]), [("cut", 3), ("failed", 90)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_tensor_of_inference_mode() -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(OFF, kind="inference")]))
    assert (found.kind, found.confidence) == ("grad-mode-disabled", "likely")
    assert "clone() the tensor" in found.advice


def test_a_line_that_was_inferred() -> None:
    found = only(traced(NO_GRAPH, seen=[dataclasses.replace(OFF, observed=False, candidates=(OFF.site,), step=7)]))
    assert (found.confidence, found.step, len(found.evidence["candidates"])) == ("likely", 7, 1)
