"""The rule on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, parameter, traced
from learning import STEP, sites_of_only
from ledgers import CLEARED, MADE_LINE, SKIPPED, STEPPED_LINE, USED, event, gave, ledger, optimizer, row

from backprobe.records import GradientUse
from backprobe.records import ledger as events

#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "gradient-not-cleared": (
        traced(STEP, seen=[GradientUse("Adam", "again", 3, at(33), at(32))]),
        [("stepped", 33), ("backward", 32)],
    ),
    "gradient-not-used": (
        traced(STEP, seen=[GradientUse("Adam", "cleared", 0, at(33), at(32), at(31), at(5))]),
        [("stepped", 33), ("cleared", 31), ("backward", 32), ("optimizer", 5)],
    ),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_gradients_that_are_cleared_between_backward_calls() -> None:
    lost = row(gave(32), CLEARED, gave(32), USED)
    idle = row(gave(32), CLEARED, SKIPPED, names=("head.weight",))
    trace = ledger(lost, idle)
    wanted = [("cleared", 31), ("backward", 32), ("stepped", STEPPED_LINE), ("optimizer", MADE_LINE)]
    assert sites_of_only("gradient-not-used", trace) == wanted
    assert "the last of 2 backward calls" in only(trace).title and "head.weight gets no update" in only(trace).title
    assert only(ledger(row(gave(32, times=3), CLEARED, gave(32), USED))).evidence["lost"] == 3


def test_gradients_that_are_cleared_on_purpose() -> None:
    other = event(events.OTHER_STEP, 41, 1)
    for rows, more in (
        ([row(gave(32), other, CLEARED, gave(32), USED)], {}),  # those of the generator's loss
        ([row(gave(30), CLEARED, gave(32), USED)], {}),  # an attack, then the training loss
        ([row(gave(32), event(events.WRITTEN), CLEARED, gave(32), event(events.RESTORED), USED)], {}),  # SAM
        ([row(gave(32), CLEARED, gave(32), event(events.REPLACED), USED)], {}),  # gradients are combined by hand
        ([row(gave(32), CLEARED, gave(32), USED)], {"reads": (at(40),)}),  # the script has read them
        ([row(gave(32), CLEARED, gave(32), USED, periods=3), row(CLEARED, gave(32), USED, periods=9)], {}),
    ):
        assert kinds(ledger(*rows, **more)) == []


def test_some_parameters_that_are_never_cleared() -> None:
    cleared = row(CLEARED, gave(32), USED, names=("b.weight",), periods=9)
    trace = ledger(cleared, row(gave(32, added=True), USED))
    wanted = [("stepped", STEPPED_LINE), ("backward", 32), ("cleared", 31), ("optimizer", MADE_LINE)]
    assert sites_of_only("gradient-not-cleared", trace) == wanted
    assert only(trace).parameters == ("a.weight",)
    for rows in ([row(gave(32, added=True), USED)], [cleared, row(gave(32, added=True), CLEARED, gave(32), USED)]):
        assert "gradient-not-cleared" not in kinds(ledger(*rows))


def test_closures_that_add_up_their_gradients() -> None:
    moved = event(events.MOVED_IN_STEP)
    trace = ledger(row(CLEARED, gave(32), moved, gave(32), moved, gave(32), USED), name="LBFGS")
    wanted = [("stepped", STEPPED_LINE), ("backward", 32), ("cleared", 31), ("optimizer", MADE_LINE)]
    assert sites_of_only("gradient-not-cleared", trace) == wanted
    assert only(trace).evidence["reason"] == "closure"
    for events_ in (
        [gave(32), moved, CLEARED, gave(32), USED],  # zero_grad() in the closure
        [CLEARED, gave(32), gave(32), USED],  # two batches in one call of the closure
    ):
        assert kinds(ledger(row(*events_))) == []


def test_an_optimizer_whose_parameters_never_have_a_gradient() -> None:
    trace = ledger(row(SKIPPED, names=("model.weight",), periods=12, moved=0))
    assert sites_of_only("gradient-not-used", trace) == [("stepped", STEPPED_LINE), ("optimizer", MADE_LINE)]
    assert only(trace).evidence["reason"] == "idle"
    one = row(SKIPPED, names=("model.weight",), periods=12, moved=0)
    assert kinds(ledger(one, row(CLEARED, gave(32), USED, names=("other.weight",)))) == []
    # A rule for lost gradients says more of the parameters of a model that the script calls.
    called = traced(STEP, seen=[optimizer(), one], parameters=[parameter("model.weight")])
    assert "gradient-not-used" not in kinds(called)


@pytest.mark.parametrize(("periods", "reported"), [(7, False), (8, True)])
def test_how_often_an_optimizer_has_to_step_without_gradients(periods: int, reported: bool) -> None:
    idle = row(SKIPPED, names=("copy.weight",), periods=periods, moved=0)
    trace = traced(STEP, seen=[replace(optimizer(), periods=periods), idle])
    assert bool(kinds(trace)) == reported


@pytest.mark.parametrize(("lost", "others", "reported"), [(2, 0, False), (3, 0, True), (5, 5, True), (5, 6, False)])
def test_how_many_periods_are_a_habit(lost: int, others: int, reported: bool) -> None:
    rows = [row(gave(32), CLEARED, gave(32), USED, periods=lost)]
    rows += [row(CLEARED, gave(32), USED, periods=others)] if others else []
    assert bool(kinds(ledger(*rows))) == reported
