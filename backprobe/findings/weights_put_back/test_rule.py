"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, call, kinds, leaf, only, run, traced
from learning import STEP, sites_of_only

from backprobe import Trace
from backprobe.records import Root, WeightsPutBack

STEPS = (40, 80, 120)
SAME = WeightsPutBack(
    *("Adam", "same", 40, 120, 3, 40, 160, 0, 0.0, ("0.weight",)), STEPS, (at(17),), True, None, at(19)
)
AVERAGE = replace(SAME, how="average", since=-1, share=0.634, lines=(at(9),), called=at(15))
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {"weights-put-back": (traced(STEP, seen=[SAME]), [("mutated", 17), ("stepped", 19)])}


def with_losses(*losses: float) -> Trace:
    """A run in which the weights are put back before steps 2 and 4, and the losses of its steps."""
    calls = [
        call(
            run("SumBackward0", 1, op="sum"),
            leaf("a.weight"),
            index=i,
            step=i,
            roots=(Root(0, (), "float32", loss, None),),
        )
        for i, loss in enumerate(losses)
    ]
    return traced(*calls, seen=[replace(SAME, replaced=(2, 4))])


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_same_values_are_put_back() -> None:
    found = only(traced(STEP, seen=[SAME]))
    assert (found.confidence, found.step, found.parameters) == ("certain", 40, ("0.weight",))
    assert found.title.startswith(
        "the weights that Adam trains are replaced 3 times by those of the beginning, each time after 40 steps of "
    )
    assert found.evidence["replaced_before_steps"] == [40, 80, 120]
    assert "those of step 15," in only(traced(STEP, seen=[replace(SAME, since=15)])).title
    assert "the same earlier ones," in only(traced(STEP, seen=[replace(SAME, since=-1)])).title


def test_an_average_is_put_back() -> None:
    found = only(traced(STEP, seen=[AVERAGE]))
    assert [(one.role, one.site.line) for one in found.sites] == [("mutated", 9), ("called", 15), ("stepped", 19)]
    assert "each time undoing about 63% of the last" in found.title
    assert found.evidence["share_undone"] == 0.634


def test_lines_that_were_not_observed() -> None:
    found = only(traced(STEP, seen=[replace(SAME, lines=(at(17), at(30)), exact=False)]))
    assert found.confidence == "likely"
    assert found.evidence["candidates"] == ["train.py:17", "train.py:30"]
    assert only(traced(STEP, seen=[replace(SAME, lines=(), exact=False)])).confidence == "likely"


def test_bad_steps_that_are_taken_back() -> None:
    assert kinds(with_losses(1.0, 50.0, 1.0, 60.0, 1.0)) == []
    assert kinds(with_losses(2.0, 1.0, 2.5, 1.5, 3.0)) == ["weights-put-back"]


def test_five_losses_on_each_side_of_a_replacement_are_compared() -> None:
    """With four losses, or six, the median before the replacement would be higher than the one after it."""
    losses = (9.0, 1.0, 1.0, 1.0, 9.0, 9.0, *(2.0,) * 6)
    trace = with_losses(*losses)
    seen = (replace(SAME, replaced=(6,)),)
    assert kinds(Trace(trace.steps, replace(trace.facts, seen=seen))) == ["weights-put-back"]
