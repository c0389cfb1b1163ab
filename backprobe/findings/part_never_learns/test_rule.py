"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, call, kinds, leaf, only, roles, run, traced
from learning import STEP, sites_of_only

from backprobe import Trace
from backprobe.records import BackwardCall, Facts, Finding, PaddingRowUsed, Step, UnlearnedRows
from backprobe.traces import Steps, TracedStep

PADDING_ROW = PaddingRowUsed(("users.weight", "items.weight"), 0, 0.25, 1, (at(7), at(8)))

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "part-never-learns": (traced(STEP, seen=[PADDING_ROW]), [("defined", 7), ("defined", 8)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_row_and_its_share_are_named() -> None:
    trace = traced(STEP, seen=[PADDING_ROW])
    assert "row 0 of users.weight, items.weight get no gradient" in only(trace).title
    assert only(trace).severity == "info" and "25.0% of the lookups" in only(trace).title


ROWS = UnlearnedRows("a.weight", "Linear", (5,), 1, 6, 0, 3, 90, 40, at(90))


def after_layer(*above: str) -> BackwardCall:
    """A call in which operations follow a layer with ``a.weight``, from the loss on."""
    names = ["SumBackward0", *above, "AddmmBackward0", "TBackward0"]
    runs = [run(name, i + 1, line=10 + i) for i, name in enumerate(names)]
    return call(*runs, leaf("a.weight"))


def found_in(seen: UnlearnedRows, *above: str) -> Finding:
    return only(traced(after_layer(*above), seen=[seen]))


@pytest.mark.parametrize("above", ["SliceBackward0", "SelectBackward0", "SplitBackward0"])
def test_an_output_that_is_cut_off(above: str) -> None:
    found = found_in(ROWS, "SigmoidBackward0", above, "TanhBackward0")
    assert (found.severity, found.confidence, found.module) == ("warning", "likely", "a")
    assert roles(found) == [("cut", 12), ("backward", 90)]
    assert "row 5 of a.weight has a gradient of exactly zero in all 40 examined steps" in found.title


def test_outputs_to_spare_are_no_warning() -> None:
    assert found_in(replace(ROWS, count=2, rows=(4, 5)), "SliceBackward0").severity == "info"
    assert found_in(ROWS, "GatherBackward0").severity == "info"


def test_units_that_are_dead() -> None:
    died = replace(ROWS, count=8, rows=tuple(range(8)), row_count=10, learned=8)
    found = found_in(died, "ReluBackward0", "NativeBatchNormBackward0")
    assert found.severity == "warning" and roles(found)[0] == ("cut", 11)
    assert "8 of 10 rows of a.weight have a gradient of exactly zero since about step 3" in found.title
    for change, severity in (
        ({"count": 6}, "info"),  # a wide layer may lose half of its units
        ({"learned": 0}, "info"),  # a single example gives many units no gradient
        ({"learned": 0, "count": 9}, "warning"),
    ):
        assert found_in(replace(died, **change), "ReluBackward0").severity == severity  # type: ignore[arg-type]
    assert kinds(traced(after_layer("ReluBackward0"), seen=[replace(died, count=2)])) == []


@pytest.mark.parametrize(("end", "severity"), [(0.9, "info"), (1.5, "warning")])
def test_units_that_died_before_the_loss_fell_on(end: float, severity: str) -> None:
    seen = replace(ROWS, count=8, rows=tuple(range(8)), row_count=10, learned=8, since=40)
    losses = [2.0] * 20 + [1.0] * 20 + [5.0] * 20 + [end] * 20
    recorded = {79: [after_layer("ReluBackward0")]}
    steps = [TracedStep(Step(i, 0.1, loss, ()), recorded.get(i, [])) for i, loss in enumerate(losses)]
    assert only(Trace(Steps(steps), Facts(seen=(seen,)))).severity == severity


def test_layers_of_one_line_are_one_finding() -> None:
    runs = [run("SumBackward0", 1, 5, line=10)]
    for i, name in ((1, "a.weight"), (5, "b.weight")):
        runs += [run("ReluBackward0", i + 1, line=11), run("AddmmBackward0", i + 2, line=11)]
        runs += [run("TBackward0", i + 3, line=11), leaf(name)]
    dead = replace(ROWS, count=4, rows=(0, 1, 2, 3), learned=4)
    found = only(traced(call(*runs), seen=[dead, replace(dead, parameter="b.weight", count=5)]))
    assert found.parameters == ("b.weight", "a.weight")
    assert "5 of 6 rows of b.weight (and some of a.weight) have" in found.title


def test_zeros_that_nothing_after_the_layer_explains() -> None:
    for above in ((), ("TanhBackward0",), ("SliceBackward0", "MmBackward0")):
        assert kinds(traced(after_layer(*above), seen=[ROWS])) == []
    assert kinds(traced(STEP, seen=[replace(ROWS, parameter="other")])) == []


def test_units_before_a_normalisation_over_single_values_are_a_consequence() -> None:
    def step(index: int, weight: float) -> BackwardCall:
        return call(
            run("ReluBackward0", 1, op="relu", line=13),
            run("NativeGroupNormBackward0", 2, 3, 4, op="group_norm", line=12, gave=(1e-5, weight, 0.5)),
            run("AddmmBackward0", 5, op="linear", line=11, came=(1e-5,), gave=(1e-5,)),
            leaf("norm.weight", came=weight),
            leaf("norm.bias", came=0.5),
            leaf("a.weight", came=1e-5),
            index=index,
        )

    seen = replace(ROWS, rows=tuple(range(30)), count=30)
    assert kinds(traced(*(step(i, 1e-6) for i in range(6)), seen=[seen])) == ["zero-grad"]
    assert kinds(traced(*(step(i, 0.5) for i in range(6)), seen=[seen])) == ["part-never-learns"]


@pytest.mark.parametrize(
    ("count", "learned", "severity"),
    [(59, 59, None), (61, 61, "info"), (74, 74, "info"), (76, 76, "warning"), (89, 0, "info"), (91, 0, "warning")],
)
def test_how_many_units_of_a_hundred_have_to_be_dead(count: int, learned: int, severity: str | None) -> None:
    dead = replace(ROWS, count=count, rows=tuple(range(count)), row_count=100, learned=learned)
    found = traced(after_layer("ReluBackward0"), seen=[dead]).findings
    assert [one.severity for one in found] == ([severity] if severity else [])
