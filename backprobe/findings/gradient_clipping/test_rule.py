"""The rule on hand-written records."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from handmade import at, call, leaf, only, run, traced
from learning import STEP, sites_of_only

from backprobe import Trace
from backprobe.records import UselessClipping
from backprobe.traces import TracedStep

EMPTY = UselessClipping("empty", False, "SGD", 3, 16, 1.0, 25.0, None, at(33), at(5), at(6))
SCALED = replace(EMPTY, reason="scaled", norm=0.5, scale=65536.0, given=None)

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "clipping-without-effect": (traced(STEP, seen=[EMPTY]), [("cause", 33), ("cause", 5), ("optimizer", 6)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


@pytest.mark.parametrize("reason", ["empty", "no-gradients", "used", "other"])
def test_the_norm_that_the_optimizer_uses_is_named(reason: str) -> None:
    finding = only(traced(STEP, seen=[replace(EMPTY, reason=reason, given=None)]))
    assert finding.title.startswith("clip_grad_norm_ ") and "steps with gradients as they are" in finding.title
    assert finding.title.endswith("with a norm of up to 25 instead of at most 1")
    assert (finding.severity, finding.confidence, finding.step) == ("warning", "certain", 3)
    assert "instead" not in only(traced(STEP, seen=[replace(EMPTY, reason=reason, norm=0.5)])).title
    assert only(traced(STEP, seen=[replace(EMPTY, reason=reason, norm=None)])).title.endswith("as they are")


@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize(
    ("reason", "norm", "severity"),
    [("used", 0.5, "info"), ("used", 25.0, "warning"), ("used", None, "warning"), ("other", 0.5, "warning")],
)
def test_a_clip_after_the_step_that_would_have_changed_nothing(
    reason: str, norm: float | None, severity: str, by_value: bool
) -> None:
    seen = replace(EMPTY, reason=reason, norm=norm, by_value=by_value)
    assert only(traced(STEP, seen=[seen])).severity == severity


def test_a_scaled_gradient_is_named_without_its_factor() -> None:
    finding = only(traced(STEP, seen=[SCALED]))
    assert "a gradient norm of 0.5 becomes at most 1.53e-05 in the step of SGD" in finding.title
    assert finding.evidence["scale"] == 65536.0
    assert (
        "its bound of 1 for each element acts as one of 1.53e-05: "
        in only(traced(STEP, seen=[replace(SCALED, by_value=True)])).title
    )


@pytest.mark.parametrize(
    ("reason", "named"), [("used", True), ("no-gradients", True), ("empty", False), ("other", False)]
)
def test_the_line_that_steps_is_named_if_the_order_is_wrong(reason: str, named: bool) -> None:
    seen = replace(EMPTY, reason=reason, given=None, stepped=at(34))
    expected = [("cause", 33), *([("stepped", 34)] if named else []), ("optimizer", 6)]
    assert sites_of_only("clipping-without-effect", traced(STEP, seen=[seen])) == expected
    same_line = replace(seen, stepped=seen.clipped)  # both in a function of a framework that one line calls
    assert ("stepped", 33) not in sites_of_only("clipping-without-effect", traced(STEP, seen=[same_line]))


@pytest.mark.parametrize(("norm", "severity"), [(500.0, "error"), (5.0, "warning")])
def test_a_run_that_blows_up_makes_it_an_error(norm: float, severity: str) -> None:
    before = call(run("SumBackward0", 1, op="sum"), leaf("a.weight", norm))
    trace = traced(before, seen=[EMPTY])
    (step,) = trace.steps
    bad = replace(step.record, index=1, loss=math.nan)
    trace = Trace([step, TracedStep(bad, [])], trace.facts)
    assert only(trace).severity == severity


@pytest.mark.parametrize(
    ("norm", "calm", "severity"), [(9.0, 0, "warning"), (11.0, 0, "error"), (11.0, 7, "error"), (11.0, 8, "warning")]
)
def test_how_large_a_gradient_has_to_be_and_how_long_before(norm: float, calm: int, severity: str) -> None:
    """The bound is 1; after a step with a large gradient, some are calm, and the next one is not finite."""
    calls = [
        call(run("SumBackward0", 1, op="sum"), leaf("a.weight", norm if i == 0 else 0.5), index=i, step=i)
        for i in range(1 + calm)
    ]
    trace = traced(*calls, seen=[EMPTY])
    bad = replace(trace.steps[0].record, index=1 + calm, loss=math.nan, backwards=())
    trace = Trace([*trace.steps, TracedStep(bad, [])], trace.facts)
    assert only(trace).severity == severity
