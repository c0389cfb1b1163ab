"""The rules on hand-written records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from handmade import NAN, at, bad_root, call, kinds, only, run, traced
from learning import STEP, sites_of_only

from backprobe import Trace
from backprobe.records import (
    BadBuffers,
    BadOp,
    FrozenInTraining,
    FrozenStatistics,
    StaleStatistics,
    UntrainedBatches,
)

NORM = BadBuffers(
    ("norm.running_mean", "norm.running_var"), "norm", "BatchNorm1d", "NaN", 3, 4, True, at(12), (), at(11), (at(13),)
)
OWN = BadBuffers(("spread",), "", "Head", "NaN", 3, 9, False, at(12), (at(20),))
FROZEN = FrozenStatistics(("body.1",), "BatchNorm1d", 20, 60, 0.5, True, at(12), (at(15),), at(17))
PART = FrozenInTraining(
    "body", "Net", (), 90, 169, 0, 6, "BatchNorm2d", 0.83, 0, True, (), (at(17),), (at(15),), at(12)
)
STALE = StaleStatistics("copy", ("norm",), 0.5, True, at(22), at(21))
OTHER = UntrainedBatches("body.1", "BatchNorm1d", 3, 150, 1.0, 0.75, True, at(31), at(30))
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "nonfinite-buffer": (traced(STEP, seen=[NORM]), [("cause", 11), ("called", 12), ("condition", 13)]),
    "frozen-buffer-changes": (traced(STEP, seen=[FROZEN]), [("cause", 17), ("frozen", 15), ("called", 12)]),
    "statistics-of-other-data": (traced(STEP, seen=[OTHER]), [("cause", 30), ("called", 31)]),
    "buffers-left-behind": (traced(STEP, seen=[STALE]), [("cause", 21), ("written", 22)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_a_buffer_of_the_script_is_a_warning_at_the_line_that_writes_it() -> None:
    found = only(traced(STEP, seen=[OWN]))
    assert found.severity == "warning" and [s.site.line for s in found.sites] == [20, 12]
    assert "spread of Head is NaN: it was written there in one of the steps 4 to 9" in found.title


def with_bad_loss(step: int) -> Trace:
    bad = call(run("SumBackward0", 1, op="sum"), run("LogBackward0"), step=step, roots=bad_root())
    return traced(bad, seen=[NORM])


def test_a_bad_buffer_after_a_bad_loss_is_a_consequence() -> None:
    assert "nonfinite-buffer" not in kinds(with_bad_loss(4))


@pytest.mark.parametrize(("line", "reported"), [(12, False), (11, False), (30, True)])
def test_a_later_bad_loss_at_the_same_line_is_the_same_mistake(line: int, reported: bool) -> None:
    """The line that calls the layer, the line that makes its input bad, or one that has nothing to do with it."""
    bad = BadOp(100, 100, "batch_norm", at(line), "norm", 1, NAN, (), None, False)
    runs = run("SumBackward0", 1, op="sum"), run("NativeBatchNormBackward0", op="batch_norm")
    trace = traced(call(*runs, step=20, roots=bad_root(), bad_ops=(bad,)), seen=[NORM])
    assert ("nonfinite-buffer" in kinds(trace)) == reported and "nonfinite-forward" in kinds(trace)


@pytest.mark.parametrize(
    ("shift", "trained", "severity"), [(0.2, True, None), (0.5, True, "warning"), (0.5, False, "info")]
)
def test_frozen_statistics_that_move_little_are_not_reported(shift: float, trained: bool, severity: str | None) -> None:
    seen = FrozenStatistics(("body.1",), "BatchNorm1d", 20, 60, shift, trained, at(12), (at(15),))
    assert [f.severity for f in traced(STEP, seen=[seen]).findings] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("moved", "learned", "severity"), [(0.4, True, None), (0.83, True, "warning"), (0.83, False, "info")]
)
def test_a_frozen_part_whose_statistics_moved_less_far(moved: float, learned: bool, severity: str | None) -> None:
    trace = traced(STEP, seen=[replace(PART, moved=moved, learned=learned)])
    assert [f.severity for f in trace.findings] == ([severity] if severity else [])


def test_a_frozen_part_is_one_finding() -> None:
    (found,) = traced(STEP, seen=[PART]).findings
    assert [(s.role, s.site.line) for s in found.sites] == [("cause", 17), ("frozen", 15), ("called", 12)]
    assert found.title == (
        "body is frozen and in training mode: the running means of 6 BatchNorm2d layers moved by up to 0.8 standard "
        "deviations in 80 steps"
    )
    (found,) = traced(STEP, seen=[PART, FROZEN]).findings
    assert found.title.startswith("the parameters of 1 layer")


@pytest.mark.parametrize("less", [{"turns": 1}, {"apart": 0.2}, {"shifted": 0.2}], ids=str)
def test_batches_that_train_nothing_and_change_little(less: dict[str, Any]) -> None:
    assert kinds(traced(STEP, seen=[replace(OTHER, **less)])) == []


def test_the_layers_of_other_data_are_one_finding_at_the_worst() -> None:
    call_only = replace(OTHER, switched=None, layer="body.4", shifted=0.9)
    found = only(traced(STEP, seen=[OTHER, call_only]))
    assert [(s.role, s.site.line) for s in found.sites] == [("cause", 31)] and found.evidence["layers"] == 2
    assert found.title == (
        "BatchNorm1d body.4 is in training mode in forwards without gradients, and takes over the statistics of their "
        "data: 90% of the channels have running statistics far from those of the training batches"
    )


@pytest.mark.parametrize(
    ("seen", "reported"),
    [
        (replace(FROZEN, shift=0.24), False),
        (replace(FROZEN, shift=0.26), True),
        (replace(PART, moved=0.49), False),
        (replace(PART, moved=0.51), True),
        (replace(STALE, apart=0.24), False),
        (replace(STALE, apart=0.26), True),
        (replace(OTHER, turns=2, apart=0.26, shifted=0.26), True),
        (replace(OTHER, apart=0.24), False),
    ],
)
def test_how_far_statistics_have_to_be(seen: object, reported: bool) -> None:
    assert bool(kinds(traced(STEP, seen=[seen]))) == reported
