"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, kinds, only, roles, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    CompiledRegion,
    Recompiled,
)

AGAIN_AND_AGAIN = tuple(Recompiled(step, f"self.calls == {step}", at(12)) for step in range(1, 5))


REGIONS = CompiledRegion("forward", at(10), None, 5, 5, 0, 7, 2.5, 0, AGAIN_AND_AGAIN)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "recompiled-often": (traced(STEP, seen=[REGIONS]), [("cause", 12), ("compiled", 10)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_function_that_is_compiled_for_a_few_shapes_is_left_alone() -> None:
    few = dataclasses.replace(REGIONS, recompiled=AGAIN_AND_AGAIN[:2])
    same_step = dataclasses.replace(REGIONS, recompiled=(AGAIN_AND_AGAIN[0],) * 6)
    assert kinds(traced(STEP, seen=[few, same_step])) == []


def test_torch_has_given_up_on_a_function() -> None:
    limit = dataclasses.replace(REGIONS, recompiled=AGAIN_AND_AGAIN[:1], limit=True, skipped="recompile limit")
    found = only(traced(STEP, seen=[limit]))
    assert "runs it in Python from step 1 on" in found.title and found.evidence["limit"] is True
    shapes = Recompiled(3, "tensor 'x' size mismatch at index 0. expected 3, actual 4", None)
    found = only(traced(STEP, seen=[dataclasses.replace(limit, recompiled=(shapes,), after=14)]))
    assert "mark_dynamic" in found.advice and roles(found) == [("compiled", 10)] and "after line 14" in found.title


def test_three_steps_with_recompilations_are_few() -> None:
    assert kinds(traced(STEP, seen=[dataclasses.replace(REGIONS, recompiled=AGAIN_AND_AGAIN[:3])])) == []
