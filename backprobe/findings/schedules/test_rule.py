"""The rules on hand-written records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from handmade import at, kinds, only, traced
from learning import STEP, sites_of_only

from backprobe import Trace
from backprobe.records import Facts, LoadedRate, PlateauMetric, ScheduleOfOther, ScheduleRestarted, ScheduleSeen, Step
from backprobe.traces import Steps, TracedStep

MADE_SITE = at(8)
STEPPED_SITE = at(20)
OPTIMIZER_SITE = at(7)
LOOP_SITE = at(10)
NEVER_STEPPED = ScheduleSeen(
    *("StepLR", "SGD", 0, 150, 0.5, 0.5, 0.5, None, 0, None, True, False),
    *(MADE_SITE, None, OPTIMIZER_SITE),
)
TURNING_COSINE = replace(
    NEVER_STEPPED, scheduler="CosineAnnealingLR", calls=200, period=10, epochs=LOOP_SITE, stepped=STEPPED_SITE
)
MADE_FOR_BATCHES = replace(
    NEVER_STEPPED, scheduler="OneCycleLR", calls=8, rate=0.01, last=0.02, highest=0.02, length=151, stepped=STEPPED_SITE
)
LONG_WARMUP = replace(MADE_FOR_BATCHES, scheduler="LambdaLR", length=0, base=0.5)
TOO_LONG_WARMUP = replace(LONG_WARMUP, calls=150, warmup=1000, planned=150)
OF_OTHER_OPTIMIZER = ScheduleOfOther(
    "StepLR", "Adam", 90, 0, "AdamW", 89, 0.01, MADE_SITE, STEPPED_SITE, OPTIMIZER_SITE
)
ACCURACY_TO_MINIMIZE = PlateauMetric("min", 20, 0.1, 0.8, 0.1, 0.8, 0, 4, 0.1, 1e-4, "max", MADE_SITE, STEPPED_SITE)
LOADED_SITE = at(40)
LEFTOVER_RATE = LoadedRate("Adam", 0.02, 1e-6, 0.05, 150, 200, LOADED_SITE, OPTIMIZER_SITE)
RESTARTED_SCHEDULE = ScheduleRestarted("LambdaLR", "Adam", 400, 1e-4, 1e-2, 1e-2, 3, MADE_SITE, STEPPED_SITE)


def trained(seen: PlateauMetric, *losses: float) -> Trace:
    """A run with these losses."""
    steps = [TracedStep(Step(i, 0.1, loss, ()), []) for i, loss in enumerate(losses or (2.3, 2.2, 1.9, 1.7, 1.5, 1.2))]
    return Trace(Steps(steps), Facts((), (), (), (seen,)))


#: Kind -> a run that shows it, and the sites of the finding.
FIRES = {
    "schedule-never-stepped": (traced(STEP, seen=[NEVER_STEPPED]), [("cause", 8), ("optimizer", 7)]),
    "schedule-of-unused-optimizer": (
        traced(STEP, seen=[OF_OTHER_OPTIMIZER]),
        [("cause", 8), ("optimizer", 7), ("stepped", 20)],
    ),
    "schedule-turns-back": (traced(STEP, seen=[TURNING_COSINE]), [("cause", 8), ("stepped", 20), ("loop", 10)]),
    "schedule-too-slow": (traced(STEP, seen=[MADE_FOR_BATCHES]), [("cause", 8), ("stepped", 20)]),
    "plateau-wrong-direction": (trained(ACCURACY_TO_MINIMIZE), [("cause", 8), ("stepped", 20)]),
    "schedule-not-resumed": (traced(STEP, seen=[RESTARTED_SCHEDULE]), [("cause", 8), ("stepped", 20)]),
}


@pytest.mark.parametrize("kind", FIRES)
def test_one_run_one_finding(kind: str) -> None:
    trace, sites = FIRES[kind]
    assert sites_of_only(kind, trace) == sites


def test_the_titles_have_rates_and_numbers() -> None:
    assert only(traced(STEP, seen=[NEVER_STEPPED])).title == (
        "nothing calls the step() of StepLR: the learning rate of SGD stays at 0.5 in all of its 150 steps"
    )
    assert only(traced(STEP, seen=[OF_OTHER_OPTIMIZER])).title == (
        "StepLR is stepped 90 times while its optimizer, Adam, never steps: AdamW trains the same parameters, at a "
        "constant rate of 0.01 in 89 steps"
    )
    assert only(traced(STEP, seen=[TURNING_COSINE])).title == (
        "CosineAnnealingLR is stepped 200 times, and its T_max is 10: the learning rate of SGD falls and rises back to "
        "0.5, 10 times; a loop over epochs counts to T_max, and another one calls step()"
    )
    assert only(traced(STEP, seen=[RESTARTED_SCHEDULE])).title == (
        "Adam continues after 400 steps of an earlier run, where its learning rate was 0.0001, and LambdaLR begins at "
        "its step 0 again: the rate jumps back to 0.01"
    )


def test_a_schedule_that_counts_batches_and_is_stepped_per_epoch() -> None:
    assert only(traced(STEP, seen=[MADE_FOR_BATCHES])).title == (
        "OneCycleLR is made for 151 steps, and is stepped 8 times, while SGD steps 150 times: the rate goes from 0.01 "
        "to 0.02 only"
    )
    assert only(traced(STEP, seen=[LONG_WARMUP])).title == (
        "LambdaLR is stepped 8 times, while SGD steps 150 times: the rate still rises when training ends, and is 0.02, "
        "0.04 times the 0.5 that it is to reach"
    )


def test_a_warm_up_that_is_longer_than_the_training() -> None:
    found = only(traced(STEP, seen=[TOO_LONG_WARMUP]))
    assert (found.kind, found.severity, found.confidence) == ("schedule-too-slow", "warning", "likely")
    assert found.title == (
        "LambdaLR warms up for 1,000 steps, and is made for a training of 150: the rate is 0.02 when training ends, "
        "0.04 times the 0.5 that it is to reach"
    )
    given = only(traced(STEP, seen=[replace(TOO_LONG_WARMUP, warmup_given=at(3))]))
    assert [(one.role, one.site) for one in given.sites] == [("cause", at(3)), ("stepped", STEPPED_SITE)]


@pytest.mark.parametrize(
    "seen",
    [
        replace(MADE_FOR_BATCHES, calls=40),
        replace(MADE_FOR_BATCHES, length=160),
        replace(MADE_FOR_BATCHES, length=100),
        replace(MADE_FOR_BATCHES, ended=False),
        replace(LONG_WARMUP, base=0.05),
        replace(LONG_WARMUP, highest=0.03),
        replace(LONG_WARMUP, calls=2),
        replace(LONG_WARMUP, calls=40),
        replace(TOO_LONG_WARMUP, planned=1500),
        replace(TOO_LONG_WARMUP, planned=0),
        replace(TOO_LONG_WARMUP, warmup=140),
        replace(TOO_LONG_WARMUP, ended=False),
        replace(TOO_LONG_WARMUP, steps=49, calls=49, planned=49),
        replace(TOO_LONG_WARMUP, last=0.3, highest=0.3),
        replace(NEVER_STEPPED, calls=1),
        replace(NEVER_STEPPED, steps=49),
        replace(NEVER_STEPPED, ended=False),
        replace(NEVER_STEPPED, elsewhere=True),
        replace(OF_OTHER_OPTIMIZER, calls=2),
        replace(TURNING_COSINE, calls=19),
        replace(TURNING_COSINE, calls=39, epochs=None),
        replace(TURNING_COSINE, period=0),
        replace(RESTARTED_SCHEDULE, loaded=9.5e-3),
        replace(RESTARTED_SCHEDULE, highest=1.5e-4, done=0),
        replace(LEFTOVER_RATE, rate=1e-3),
        replace(LEFTOVER_RATE, steps=49),
        replace(LEFTOVER_RATE, begin=1e-5),
    ],
)
def test_what_is_no_finding(seen: object) -> None:
    assert kinds(traced(STEP, seen=[seen])) == []


def test_the_rate_that_an_ended_schedule_left() -> None:
    found = only(traced(STEP, seen=[LEFTOVER_RATE]))
    assert (found.kind, found.severity, found.confidence) == ("schedule-not-resumed", "warning", "likely")
    assert [(site.role, site.site) for site in found.sites] == [("cause", LOADED_SITE), ("optimizer", OPTIMIZER_SITE)]
    assert "made with a learning rate of 0.02" in found.title and "set it to 1e-06" in found.title
    assert "schedule-not-resumed" not in kinds(traced(STEP, seen=[LEFTOVER_RATE, replace(NEVER_STEPPED, calls=7)]))


def test_an_optimizer_that_takes_over() -> None:
    assert only(traced(STEP, seen=[replace(OF_OTHER_OPTIMIZER, done=100, other="LBFGS")])).severity == "info"
    again = only(traced(STEP, seen=[replace(OF_OTHER_OPTIMIZER, done=100, other="Adam")]))
    assert again.severity == "warning" and "steps no more: a second Adam" in again.title


def test_turns_that_may_be_meant_and_rates_that_go_on_are_for_information() -> None:
    turns = only(traced(STEP, seen=[replace(TURNING_COSINE, epochs=None)]))
    assert (turns.severity, turns.confidence) == ("info", "possible")
    goes_on = only(traced(STEP, seen=[replace(RESTARTED_SCHEDULE, highest=1e-4)]))
    assert goes_on.severity == "info" and goes_on.title.endswith("LambdaLR begins at its step 0 again")


def test_values_show_the_direction_if_no_name_does() -> None:
    assert only(trained(replace(ACCURACY_TO_MINIMIZE, direction=""))).confidence == "possible"
    loss = replace(ACCURACY_TO_MINIMIZE, mode="max", first=2.3, last=0.9, lowest=0.9, highest=2.3, direction="")
    assert "mode='min'" in only(trained(loss)).advice


@pytest.mark.parametrize(
    "seen",
    [
        replace(ACCURACY_TO_MINIMIZE, direction="min"),
        replace(ACCURACY_TO_MINIMIZE, direction="?"),
        replace(ACCURACY_TO_MINIMIZE, best_at=8),
        replace(ACCURACY_TO_MINIMIZE, last_rate=0.1),
        replace(ACCURACY_TO_MINIMIZE, calls=4),
        replace(ACCURACY_TO_MINIMIZE, last=0.101),
        replace(ACCURACY_TO_MINIMIZE, direction="", first=1.9, lowest=1.9, last=2.6, highest=2.6),
        replace(ACCURACY_TO_MINIMIZE, direction="", mode="max", first=0.9, last=0.5, lowest=0.5, highest=0.9),
    ],
    ids=["a loss", "computed", "better later", "no cut", "few", "no change", "overfitting", "accuracy that falls"],
)
def test_metrics_that_are_judged_rightly(seen: PlateauMetric) -> None:
    assert kinds(trained(seen)) == []


def test_the_name_of_the_metric_and_the_line_of_the_mode() -> None:
    named = replace(ACCURACY_TO_MINIMIZE, name="val_acc", mode_given=at(9))
    found = only(trained(named))
    assert "is given 'val_acc', which rises from 0.1 to 0.8 while" in found.title
    assert [(one.role, one.site) for one in found.sites] == [("cause", at(9)), ("stepped", STEPPED_SITE)]
    assert "is given a metric that rises from" in only(trained(ACCURACY_TO_MINIMIZE)).title


def test_a_loss_that_rises_too() -> None:
    assert kinds(trained(ACCURACY_TO_MINIMIZE, 1.0, 1.1, 1.4, 2.0, 2.1, 2.2)) == []


@pytest.mark.parametrize(
    "seen",
    [
        replace(NEVER_STEPPED, steps=50),
        replace(OF_OTHER_OPTIMIZER, calls=3),
        replace(TURNING_COSINE, calls=20),
        replace(MADE_FOR_BATCHES, calls=30),
        replace(MADE_FOR_BATCHES, length=154),
        replace(LONG_WARMUP, base=0.105),
        replace(LONG_WARMUP, calls=3),
        replace(RESTARTED_SCHEDULE, loaded=8.9e-3),
        replace(RESTARTED_SCHEDULE, highest=2.1e-4, done=0),
        replace(LEFTOVER_RATE, rate=1.9e-4),
        replace(LEFTOVER_RATE, steps=50),
    ],
)
def test_what_is_just_a_finding(seen: object) -> None:
    assert len(kinds(traced(STEP, seen=[seen]))) == 1


@pytest.mark.parametrize(
    "seen",
    [
        replace(MADE_FOR_BATCHES, calls=31),
        replace(MADE_FOR_BATCHES, length=155),
        replace(LONG_WARMUP, base=0.095),
        replace(RESTARTED_SCHEDULE, loaded=9.1e-3),
        replace(RESTARTED_SCHEDULE, highest=1.9e-4, done=0),
        replace(LEFTOVER_RATE, rate=2.1e-4),
    ],
)
def test_what_is_just_no_finding(seen: object) -> None:
    assert kinds(traced(STEP, seen=[seen])) == []


UNNAMED_ACCURACY = replace(ACCURACY_TO_MINIMIZE, direction="")
UNNAMED_LOSS = replace(UNNAMED_ACCURACY, mode="max", first=2.3, last=0.9, lowest=0.9, highest=2.3)


@pytest.mark.parametrize(
    ("seen", "losses", "reported"),
    [
        (replace(ACCURACY_TO_MINIMIZE, calls=5), (), True),
        (replace(ACCURACY_TO_MINIMIZE, best_at=2), (), True),
        (replace(ACCURACY_TO_MINIMIZE, best_at=3), (), False),
        (replace(ACCURACY_TO_MINIMIZE, last=0.1056), (), True),
        (replace(ACCURACY_TO_MINIMIZE, last=0.1048), (), False),
        (replace(UNNAMED_ACCURACY, last=0.31), (), True),
        (replace(UNNAMED_ACCURACY, last=0.29), (), False),
        (replace(UNNAMED_LOSS, last=1.6), (), True),
        (replace(UNNAMED_LOSS, last=1.63), (), False),
        (UNNAMED_ACCURACY, (0.25, 0.24, 0.23, 0.21, 0.15, 0.1), True),
        (UNNAMED_ACCURACY, (0.25, 0.24, 0.23, 0.19, 0.15, 0.1), False),
    ],
)
def test_how_far_a_metric_has_to_go(seen: PlateauMetric, losses: tuple[float, ...], reported: bool) -> None:
    assert bool(kinds(trained(seen, *losses))) == reported
