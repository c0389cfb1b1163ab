"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import INF, at, bad_root, call, kinds, leaf, only, run, traced
from learning import STEP, sites_of_only

from backprobe.records import DetachedState

GRU_STATE = DetachedState("GRUCell", "encoder.cell", 11, 3, 0, at(26), at(27))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"detached-in-time": (traced(STEP, seen=[GRU_STATE]), [("cut", 26), ("called", 27)])}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_title_names_the_module_and_the_steps_of_time() -> None:
    finding = only(traced(STEP, seen=[GRU_STATE]))
    assert finding.title == (
        "the hidden state of encoder.cell (GRUCell) is detached at each of 11 steps of time within one backward call: "
        "no gradient passes from a step to the one before"
    )
    assert (finding.severity, finding.confidence, finding.module) == ("warning", "certain", "encoder.cell")


def test_a_line_that_detaches_and_calls_is_named_once() -> None:
    assert sites_of_only("detached-in-time", traced(STEP, seen=[replace(GRU_STATE, detached=at(27))])) == [("cut", 27)]
    assert sites_of_only("detached-in-time", traced(STEP, seen=[replace(GRU_STATE, detached=None)])) == [("cut", 27)]


def test_it_is_not_reported_beside_an_error() -> None:
    bad = call(run("MulBackward0", 1, op="mul"), leaf("a.weight"), roots=bad_root(INF))
    assert kinds(traced(bad, seen=[GRU_STATE])) == ["nonfinite-forward"]
