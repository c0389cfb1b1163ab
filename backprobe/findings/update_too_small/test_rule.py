"""The rule on hand-written records; ``levels/test_rule.py`` has the alarms of that kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, parameter, roles
from learning import sites_of_only
from ledgers import CLEARED, MADE_LINE, STEPPED_LINE, USED, gave, optimizer, row

from backprobe import Trace
from backprobe.records import (
    Facts,
    LedgerRow,
    LedgerStay,
    ParameterStat,
    ScheduleSeen,
    Step,
    TinyUpdates,
    UselessClipping,
)
from backprobe.records import ledger as events
from backprobe.traces import Steps, TracedStep

TINY_UPDATES = TinyUpdates("a.weight", 30, 3e-9, 1e-9, 2e-9, 0, 59)


def run(
    *tiny: TinyUpdates | ScheduleSeen | UselessClipping, losses: tuple[float, ...] = (2.3,) * 60, ask: str = ""
) -> Trace:
    """A run of one optimizer that holds ``a.weight``, ``b.weight`` and ``b.bias``."""
    names = ("a.weight", "b.weight", "b.bias")
    shapes = {"b.bias": (4,)}
    parameters = tuple(parameter(name, shape=shapes.get(name, (4, 4))) for name in names)
    stats = tuple(ParameterStat(name, 1.0, 0.1, 1e-9) for name in names)
    steps = [TracedStep(Step(i, 0.1, loss, (), stats), []) for i, loss in enumerate(losses)]
    seen = (optimizer(), row(CLEARED, gave(32), USED, names=names), *tiny)
    return Trace(Steps(steps), Facts(parameters, (), (ask,) if ask else (), seen))


TINY_UPDATES_OF_ALL = TINY_UPDATES, replace(TINY_UPDATES, parameter="b.weight", largest=8e-9)
#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "update-too-small": (run(*TINY_UPDATES_OF_ALL), [("optimizer", MADE_LINE), ("stepped", STEPPED_LINE)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_title_has_the_largest_update() -> None:
    """A vector may move by more: one that began as zeros does."""
    found = only(run(*TINY_UPDATES_OF_ALL))
    assert found.title == "no step of SGD changes a.weight, b.weight by more than 8e-09 of its norm"
    assert (found.parameters, found.evidence["measured_steps"]) == (("a.weight", "b.weight"), 30)
    assert "learning rate" in found.advice


@pytest.mark.parametrize("cause", [events.ROUNDED, events.CLIPPED, events.NOT_KNOWN])
def test_updates_that_round_away_are_reported(cause: str) -> None:
    """An update of zero may also be that of an optimizer that adds gradients up, and moves nothing in some steps."""
    none = [replace(one, largest=0.0) for one in TINY_UPDATES_OF_ALL]
    stayed = replace(row(CLEARED, gave(32), USED, names=("a.weight", "b.weight")), stayed=(LedgerStay(cause, 9, 1e-3),))
    trace = run(*none)
    seen = tuple(one for one in trace.facts.seen if not isinstance(one, LedgerRow))
    trace = Trace(trace.steps, replace(trace.facts, seen=(*seen, stayed)))
    titles = [finding.title for finding in trace.findings]
    said = "no step of SGD changes a.weight, b.weight at all, though they have gradients"
    assert titles == ([] if cause == events.NOT_KNOWN else [said])


def test_clipping_that_leaves_nothing_is_named() -> None:
    clipping = UselessClipping("tiny-bound", False, "SGD", 0, 30, 1e-5, 10.0, None, at(9), None, at(MADE_LINE))
    found = only(run(*TINY_UPDATES_OF_ALL, clipping))
    assert "clipping leaves 1e-06 of the gradients' norm" in found.title and found.advice.startswith("Clip to")
    assert roles(found) == [("cause", 9), ("optimizer", MADE_LINE), ("stepped", STEPPED_LINE)]
    of_other = replace(clipping, optimizer="Adam")
    assert "clipping" not in only(run(*TINY_UPDATES_OF_ALL, of_other)).title
    assert kinds(run(clipping)) == []  # Adam may train well with it


@pytest.mark.parametrize(
    "trace",
    [
        run(TINY_UPDATES),
        run(*(replace(one, steps=6) for one in TINY_UPDATES_OF_ALL)),
        run(*(replace(one, until=29) for one in TINY_UPDATES_OF_ALL)),
        run(*(replace(one, last=2e-8) for one in TINY_UPDATES_OF_ALL)),
        run(*(replace(one, largest=0.0) for one in TINY_UPDATES_OF_ALL)),
        run(*TINY_UPDATES_OF_ALL, losses=(2.3,) * 45),
        run(*TINY_UPDATES_OF_ALL, losses=(2.3,) * 30 + (2.0,) * 30),
        run(*TINY_UPDATES_OF_ALL, ask="levels"),
    ],
    ids=[
        "another matrix moves",
        "few steps",
        "not measured later",
        "warm-up",
        "no update",
        "short run",
        "the loss falls",
        "levels",
    ],
)
def test_what_is_no_finding(trace: Trace) -> None:
    assert kinds(trace) == []


EXPONENTIAL = ScheduleSeen(
    *("ExponentialLR", "SGD", 60, 60, 0.5, 1e-9, 0.5, 8, 0, None, True, True),
    *(at(40), at(41), at(MADE_LINE)),
)
SINCE = tuple(replace(one, since=20) for one in TINY_UPDATES_OF_ALL)


def test_a_schedule_that_takes_the_rate_away() -> None:
    found = only(run(*SINCE, EXPONENTIAL))
    assert found.title == (
        "ExponentialLR has reduced the learning rate of SGD from 0.5 to 1e-09 in 60 calls of its step(): from step 20 "
        "on, in 40 of 60 steps, no matrix changes by more than 8e-09 of its norm"
    )
    assert roles(found) == [("cause", 41), ("cause", 40), ("optimizer", MADE_LINE)] and found.step == 20


@pytest.mark.parametrize(
    "trace",
    [
        run(*SINCE),
        run(*SINCE, replace(EXPONENTIAL, calls=0)),
        run(*SINCE, replace(EXPONENTIAL, low_since=None)),
        run(*SINCE, replace(EXPONENTIAL, low_since=45)),
        run(*SINCE, replace(EXPONENTIAL, optimizer="Adam")),
        run(SINCE[0], EXPONENTIAL),
        run(*(replace(one, since=31) for one in SINCE), EXPONENTIAL),
        run(*SINCE, EXPONENTIAL, losses=(2.3,) * 20 + (0.1,) * 40),
    ],
    ids=[
        "no schedule",
        "not stepped",
        "no low rate",
        "the end",
        "another optimizer",
        "a part",
        "few",
        "converged",
    ],
)
def test_schedules_that_leave_enough(trace: Trace) -> None:
    assert kinds(trace) == []


def all_tiny(**more: float) -> list[TinyUpdates]:
    return [replace(one, **more) for one in TINY_UPDATES_OF_ALL]


@pytest.mark.parametrize(
    ("trace", "reported"),
    [
        (run(*TINY_UPDATES_OF_ALL, losses=(2.3,) * 49), False),
        (run(*TINY_UPDATES_OF_ALL, losses=(2.3,) * 50), True),
        (run(*all_tiny(steps=7)), True),
        (run(*all_tiny(until=30)), True),
        (run(*all_tiny(last=9e-9)), True),
        (run(*all_tiny(last=1.1e-8)), False),
        (run(*TINY_UPDATES_OF_ALL, losses=(2.0,) * 30 + (1.91,) * 30), True),
        (run(*TINY_UPDATES_OF_ALL, losses=(2.0,) * 30 + (1.89,) * 30), False),
    ],
)
def test_how_many_updates_have_to_be_tiny(trace: Trace, reported: bool) -> None:
    assert bool(kinds(trace)) == reported


@pytest.mark.parametrize(
    ("trace", "reported"),
    [
        (run(*(replace(one, steps=4) for one in SINCE), EXPONENTIAL), False),
        (run(*(replace(one, steps=5) for one in SINCE), EXPONENTIAL), True),
        (run(*(replace(one, since=30) for one in SINCE), EXPONENTIAL), True),
        (run(*SINCE, replace(EXPONENTIAL, low_since=190), losses=(2.3,) * 300), True),
        (run(*SINCE, replace(EXPONENTIAL, low_since=210), losses=(2.3,) * 300), False),
        (run(*SINCE, EXPONENTIAL, losses=(2.0,) * 20 + (0.11,) * 40), True),
        (run(*SINCE, EXPONENTIAL, losses=(2.0,) * 20 + (0.09,) * 40), False),
    ],
)
def test_how_much_of_a_run_a_schedule_has_to_take_away(trace: Trace, reported: bool) -> None:
    assert bool(kinds(trace)) == reported
