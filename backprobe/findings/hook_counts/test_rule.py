"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import HooksPileUp

PILED_UP = HooksPileUp(("a.weight", "a.bias"), "register_hook", "<lambda>", 9, 4, 128, False, at(7))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "hooks-pile-up": (traced(STEP, seen=[PILED_UP]), [("hook", 7)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_hooks_that_run_all() -> None:
    found = only(traced(STEP, seen=[PILED_UP]))
    assert found.severity == "warning" and "and all of them run" in found.title
    assert "a.weight has 9 hooks <lambda>, and as many on 1 other" in found.title


def test_hooks_with_different_tensors_may_be_meant() -> None:
    trace = traced(STEP, seen=[dataclasses.replace(PILED_UP, varies=True)])
    assert only(trace).severity == "info"
