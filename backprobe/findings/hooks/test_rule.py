"""The rule on hand-written records."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import at, kinds, only, roles, traced
from learning import STEP, sites_of_only

from backprobe.records import (
    HookSeen,
    StaleRead,
)

HOOK = HookSeen("output", ("block",), ("dict",), at(5), None)


STALE = StaleRead("net.weight", "tensor", at(30), at(5), True, 1)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "hook-inplace-conflict": (
        traced(STEP, seen=[HookSeen("inplace", ("block",), (), at(5), at(6))]),
        [("hook", 5), ("mutated", 6)],
    ),
    "hook-never-fires": (traced(STEP, seen=[HOOK]), [("hook", 5)]),
    "legacy-hook-partial": (traced(STEP, seen=[HookSeen("legacy", ("block",), ("9",), at(5), None)]), [("hook", 5)]),
    "hook-order": (traced(STEP, seen=[STALE]), [("stale", 30), ("hook", 5)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_why_a_hook_never_fires() -> None:
    late = only(traced(STEP, seen=[dataclasses.replace(HOOK, reason="compiled")]))
    assert (late.kind, late.confidence) == ("hook-never-fires", "likely") and "compiled code does not run" in late.title
    forward = only(traced(STEP, seen=[dataclasses.replace(HOOK, reason="forward", bypass=at(6))]))
    assert "was not called as a module" in forward.title
    assert roles(forward) == [("hook", 5), ("bypass", 6)]
    several = only(traced(STEP, seen=[dataclasses.replace(HOOK, modules=("", "b"), site=None)]))
    assert (several.module, several.confidence) == (None, "likely")
    assert several.title.startswith("the backward hook on the model itself, b never fires")


def test_one_hook_that_reads_on_several_lines_is_one_finding() -> None:
    second = dataclasses.replace(STALE, stale=at(31), on="module", empty=False)
    found = only(traced(STEP, seen=[STALE, second]))
    assert roles(found) == [("stale", 30), ("stale", 31), ("hook", 5)]
    assert "it sees None" in found.title
    other = dataclasses.replace(second, hook=None)
    assert kinds(traced(STEP, seen=[STALE, other])) == ["hook-order"] * 2
