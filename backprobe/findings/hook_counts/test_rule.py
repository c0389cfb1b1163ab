"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

from handmade import at, only, traced
from learning import STEP, sites_of_only

from backprobe.records import HooksPileUp

PILED_UP = HooksPileUp(("a.weight", "a.bias"), "register_hook", "<lambda>", 9, 4, 128, False, at(7))


def test_one_run_one_finding() -> None:
    trace = traced(STEP, seen=[PILED_UP])
    assert sites_of_only("hooks-pile-up", trace) == [("hook", 7)]
    found = only(trace)
    assert found.severity == "warning" and "and all of them run" in found.title
    assert "a.weight has 9 hooks <lambda>, and as many on 1 other" in found.title


def test_hooks_with_different_tensors_may_be_meant() -> None:
    trace = traced(STEP, seen=[dataclasses.replace(PILED_UP, varies=True)])
    assert only(trace).severity == "info"
