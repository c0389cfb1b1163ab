"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.findings.forward_error.rule import _TEXTS
from backprobe.records import RefusedOp

SPLIT = RefusedOp("split", "Output 0 of Split is a view", at(12), at(10), True, 4, "net", "Split")

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "forward-error": (traced(STEP, seen=[SPLIT]), [("cause", 12), ("made", 10)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize("reason", _TEXTS)
def test_a_line_that_was_inferred_is_likely(reason: str) -> None:
    found = only(traced(STEP, seen=[dataclasses.replace(SPLIT, reason=reason, observed=False)]))
    assert (found.severity, found.confidence, found.step) == ("error", "likely", 4)
    assert found.evidence["inferred"] == ["made"]
    alone = only(traced(STEP, seen=[dataclasses.replace(SPLIT, reason=reason, observed=False, made=None)]))
    assert alone.confidence == "certain" and "inferred" not in alone.evidence


def test_a_copied_tensor_is_named() -> None:
    seen = dataclasses.replace(SPLIT, reason="copied", op="", attribute="attention")
    found = only(traced(STEP, seen=[seen]))
    assert found.title.endswith("copies a tensor that has a graph, which autograd refuses: net.attention")
    assert found.evidence["attribute"] == "attention"
