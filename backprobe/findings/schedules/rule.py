"""Rules for learning rate schedulers that are not stepped, or do something else than was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted, number
from ...records import (
    Finding,
    LedgerOptimizer,
    LoadedRate,
    PlateauMetric,
    ScheduleOfOther,
    ScheduleRestarted,
    ScheduleSeen,
)
from ..relations.losses import loss_ends
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "schedule-never-stepped",
        "warning",
        "a learning rate scheduler is never stepped: the rate stays as it is",
        rank=LEARNING + 60,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that makes the scheduler",
    )
)
def never_stepped(trace: Trace) -> list[Finding]:
    """Report schedulers whose `step()` is never called in a run of many steps."""
    stepped = {one.made: one.stepped for one in trace.facts.of(LedgerOptimizer)}
    return [
        Finding(
            kind="schedule-never-stepped",
            severity="warning",
            title=f"nothing calls the step() of {one.scheduler}: the learning rate of {one.optimizer} stays at "
            f"{number(one.last)} in all of its {one.steps:,} steps",
            confidence="certain",
            sites=sites_of(
                ("cause", one.made),
                ("stepped", stepped.get(one.optimizer_made)),
                ("optimizer", one.optimizer_made),
            ),
            evidence={
                "scheduler": one.scheduler,
                "optimizer": one.optimizer,
                "steps": one.steps,
                "rate": one.last,
            },
            advice="Call the scheduler's step() after the optimizer's, once per batch or per epoch, as its settings "
            "assume: Lightning does so only with automatic optimization. Remove the scheduler if the rate shall be "
            "constant.",
        )
        for one in trace.facts.of(ScheduleSeen)
        if not one.calls and one.ended and not one.elsewhere and one.steps >= thresholds.SCHEDULE_MIN_STEPS
    ]


@rule(
    Kind(
        "schedule-of-unused-optimizer",
        "warning",
        "a scheduler changes the rate of an optimizer that does not step; another one trains its parameters",
        rank=LEARNING + 61,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that makes the scheduler, and both optimizers",
    )
)
def of_unused_optimizer(trace: Trace) -> list[Finding]:
    """Report schedulers of an optimizer that does not step, while another optimizer trains the same parameters."""
    return [
        _of_other(one) for one in trace.facts.of(ScheduleOfOther) if one.calls >= thresholds.SCHEDULE_MIN_IDLE_CALLS
    ]


def _of_other(seen: ScheduleOfOther) -> Finding:
    """Return the finding for a scheduler whose optimizer does not step, while another one trains the same parameters.

    It is only information if its optimizer stepped before and the other is of another class.
    """
    stops = "steps no more" if seen.done else "never steps"
    a_second = f"a second {seen.other}" if seen.other == seen.optimizer else seen.other
    return Finding(
        kind="schedule-of-unused-optimizer",
        severity="warning" if not seen.done or seen.other == seen.optimizer else "info",
        title=f"{seen.scheduler} is stepped {counted(seen.calls, 'time')} while its optimizer, {seen.optimizer}, "
        f"{stops}: {a_second} trains the same parameters, at a constant rate of {number(seen.rate)} in "
        f"{counted(seen.steps, 'step')}",
        confidence="certain",
        sites=sites_of(("cause", seen.made), ("optimizer", seen.other_made), ("stepped", seen.stepped)),
        evidence={
            "scheduler": seen.scheduler,
            "optimizer": seen.optimizer,
            "calls": seen.calls,
            "other": seen.other,
            "steps": seen.steps,
            "rate": seen.rate,
        },
        advice=f"Make the scheduler after the {seen.other} that is stepped, and give it that optimizer.",
    )


@rule(
    Kind(
        "schedule-turns-back",
        "warning",
        "CosineAnnealingLR is stepped far beyond `T_max`: the rate rises again",
        rank=LEARNING + 62,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that makes the scheduler, and its `step()`",
    )
)
def turns_back(trace: Trace) -> list[Finding]:
    """Report `CosineAnnealingLR` schedulers that are stepped far beyond `T_max`, so that the rate rises again."""
    return [
        _turns_back(one)
        for one in trace.facts.of(ScheduleSeen)
        if one.period
        and one.calls >= thresholds.SCHEDULE_TURN_PERIODS * one.period * (1 if one.epochs is not None else 2)
    ]


def _turns_back(seen: ScheduleSeen) -> Finding:
    """Return the finding for a `CosineAnnealingLR`, known to have been stepped far beyond `T_max`.

    It is only information if no loop over epochs counts to `T_max`.
    """
    turns = counted(seen.calls // (thresholds.SCHEDULE_TURN_PERIODS * seen.period), "time")
    meant = "" if seen.epochs is None else "; a loop over epochs counts to T_max, and another one calls step()"
    return Finding(
        kind="schedule-turns-back",
        severity="warning" if seen.epochs is not None else "info",
        title=f"CosineAnnealingLR is stepped {seen.calls:,} times, and its T_max is {seen.period:,}: the learning rate "
        f"of {seen.optimizer} falls and rises back to {number(seen.highest)}, {turns}{meant}",
        confidence="likely" if seen.epochs is not None else "possible",
        sites=sites_of(("cause", seen.made), ("stepped", seen.stepped), ("loop", seen.epochs)),
        evidence={
            "optimizer": seen.optimizer,
            "period": seen.period,
            "calls": seen.calls,
            "highest_rate": seen.highest,
            "rate": seen.last,
        },
        advice=f"Give T_max the number of calls of step(), here {seen.calls:,}, or call step() once per epoch. If "
        "restarts are meant, CosineAnnealingWarmRestarts says so.",
    )


@rule(
    Kind(
        "schedule-too-slow",
        "warning",
        "a schedule for batches is stepped per epoch, or warms up for longer than the run: the rate stays low",
        rank=LEARNING + 65,
        questions=(Question.LEARNS_BADLY, Question.NOT_LEARNING),
        points_to="the line that makes the scheduler, or gives a library its warm-up; and its `step()`",
    )
)
def too_slow(trace: Trace) -> list[Finding]:
    """Report schedulers that are made to be stepped for each batch and are stepped once per epoch, and those whose
    warm-up is longer than the training that they are made for.
    """
    seen = [one for one in trace.facts.of(ScheduleSeen) if one.ended and one.steps >= thresholds.SCHEDULE_MIN_STEPS]
    few = [one for one in seen if one.steps >= thresholds.SCHEDULE_MIN_STEPS_PER_CALL * one.calls]
    too_few = [_too_slow(one) for one in few if _is_made_for_batches(one) or _stays_in_warmup(one)]
    return [*too_few, *(_warms_up_too_long(one) for one in seen if one not in few and _never_warms_up(one))]


def _never_warms_up(seen: ScheduleSeen) -> bool:
    """Return whether the warm-up is longer than the planned training, of which all was done.

    A run that was cut short has done less than was planned.
    """
    is_done = 0 < seen.planned <= (1 + thresholds.SCHEDULE_LENGTH_TOLERANCE) * seen.calls + 1
    return is_done and seen.warmup > seen.planned and _stays_in_warmup(seen)


def _warms_up_too_long(seen: ScheduleSeen) -> Finding:
    """Return the finding for one scheduler whose warm-up is longer than the training that it is made for."""
    return Finding(
        kind="schedule-too-slow",
        severity="warning",
        title=f"{seen.scheduler} warms up for {seen.warmup:,} steps, and is made for a training of {seen.planned:,}: "
        f"the rate is {number(seen.last)} when training ends, {seen.last / seen.base:.2g} times the "
        f"{number(seen.base)} that it is to reach",
        confidence="likely",
        sites=sites_of(("cause", seen.warmup_given or seen.made), ("stepped", seen.stepped)),
        evidence={
            "scheduler": seen.scheduler,
            "optimizer": seen.optimizer,
            "warmup": seen.warmup,
            "planned": seen.planned,
            "calls": seen.calls,
            "steps": seen.steps,
            "rate": seen.last,
            "base_rate": seen.base,
        },
        advice=f"Make the warm-up a small part of the {seen.planned:,} steps, such as a tenth, or train for longer.",
    )


def _is_made_for_batches(seen: ScheduleSeen) -> bool:
    """Return whether a scheduler's length is the number of its optimizer's steps, and it was stepped far less often."""
    has_done_few = 0 < thresholds.SCHEDULE_MIN_STEPS_PER_CALL * seen.calls <= seen.length
    return has_done_few and abs(seen.length - seen.steps) <= thresholds.SCHEDULE_LENGTH_TOLERANCE * seen.steps + 1


def _stays_in_warmup(seen: ScheduleSeen) -> bool:
    """Return whether the rate still rises at the end of the run, far below the rate that the warm-up is to reach."""
    is_rising = seen.calls >= thresholds.SCHEDULE_MIN_WARMUP_CALLS and seen.rate < seen.last == seen.highest
    return is_rising and seen.last < thresholds.SCHEDULE_MAX_WARMUP_SHARE * seen.base


def _too_slow(seen: ScheduleSeen) -> Finding:
    """Return the finding for one scheduler that is stepped less often than its settings require."""
    if _is_made_for_batches(seen):
        made_for = f"is made for {seen.length:,} steps, and is stepped {counted(seen.calls, 'time')}"
        rate = f"the rate goes from {number(seen.rate)} to {number(seen.last)} only"
    else:
        made_for = f"is stepped {counted(seen.calls, 'time')}"
        rate = (
            f"the rate still rises when training ends, and is {number(seen.last)}, "
            f"{seen.last / seen.base:.2g} times the {number(seen.base)} that it is to reach"
        )
    return Finding(
        kind="schedule-too-slow",
        severity="warning",
        title=f"{seen.scheduler} {made_for}, while {seen.optimizer} steps {seen.steps:,} times: {rate}",
        confidence="likely",
        sites=sites_of(("cause", seen.made), ("returned", seen.returned), ("stepped", seen.stepped)),
        evidence={
            "scheduler": seen.scheduler,
            "optimizer": seen.optimizer,
            "length": seen.length,
            "calls": seen.calls,
            "steps": seen.steps,
            "rate": seen.last,
            "base_rate": seen.base,
        },
        advice="Call the scheduler's step() after each step of the optimizer (in Lightning, return it as "
        '{"scheduler": scheduler, "interval": "step"}), or make it for the number of epochs.',
    )


@rule(
    Kind(
        "plateau-wrong-direction",
        "warning",
        "ReduceLROnPlateau cuts the rate because a metric improves: its `mode` is the other one",
        rank=LEARNING + 63,
        questions=(Question.LEARNS_BADLY, Question.NOT_LEARNING),
        points_to="the line that makes the scheduler, or that of its `mode` in a call over several lines",
    ),
    silences=("learning-rate-zero",),
)
def wrong_direction(trace: Trace) -> list[Finding]:
    """Report `ReduceLROnPlateau` schedulers that cut the rate although their metric improves, since `mode` is the wrong
    one.
    """
    return [_wrong_direction(one) for one in trace.facts.of(PlateauMetric) if _is_wrong(one, trace)]


def _is_wrong(seen: PlateauMetric, trace: Trace) -> bool:
    """Return whether a metric moves against its `mode` while the training loss falls, and the rate was cut for that."""
    early = seen.best_at <= max(1, int(thresholds.PLATEAU_EARLY_SHARE * seen.calls))
    if (
        seen.calls < thresholds.PLATEAU_MIN_METRICS
        or not early
        or not seen.last_rate < seen.rate
        or seen.direction in ("?", seen.mode)
    ):
        return False
    losses = loss_ends(trace)
    gain = seen.last - seen.first if seen.mode == "min" else seen.first - seen.last
    if losses is None or losses.last > losses.first or gain <= thresholds.PLATEAU_MIN_CHANGE * abs(seen.first):
        return False
    return bool(seen.direction) or _looks_wrong(seen, gain, trace)


def _looks_wrong(seen: PlateauMetric, gain: float, trace: Trace) -> bool:
    """Return whether the values of a metric alone show an accuracy that is minimised, or a loss that is maximised.

    :param gain: by how much the metric moved against its `mode`.
    """
    if seen.mode == "max":
        return seen.lowest >= 0 and seen.highest > 1 and gain >= thresholds.PLATEAU_MIN_FALL * seen.first
    rows = (row.loss for row in trace.step_rows(max(0, seen.step - 1)) if row.loss is not None)
    loss = next(rows, None)
    is_share = (
        seen.lowest >= 0
        and seen.highest <= 1
        and gain >= thresholds.PLATEAU_MIN_GAIN
        and seen.first <= seen.lowest + thresholds.PLATEAU_MIN_CHANGE
    )
    return (
        is_share
        and loss is not None
        and not loss / thresholds.PLATEAU_LOSS_FACTOR <= seen.first <= loss * thresholds.PLATEAU_LOSS_FACTOR
    )


def _wrong_direction(seen: PlateauMetric) -> Finding:
    """Return the finding for one scheduler with the wrong `mode`."""
    other = "max" if seen.mode == "min" else "min"
    moves = "rises" if seen.mode == "min" else "falls"
    metric = f"{seen.name!r}, which" if seen.name else "a metric that"
    return Finding(
        kind="plateau-wrong-direction",
        severity="warning",
        title=f"ReduceLROnPlateau(mode={seen.mode!r}) is given {metric} {moves} from {number(seen.first)} to "
        f"{number(seen.last)} while the training loss falls: it takes each improvement for a plateau, and has cut "
        f"the learning rate from {number(seen.rate)} to {number(seen.last_rate)}",
        confidence="likely" if seen.direction else "possible",
        sites=sites_of(("cause", seen.mode_given or seen.made), ("stepped", seen.stepped)),
        evidence={
            "mode": seen.mode,
            "metric": seen.name,
            "calls": seen.calls,
            "first": seen.first,
            "last": seen.last,
            "first_rate": seen.rate,
            "rate": seen.last_rate,
        },
        advice=f"Give ReduceLROnPlateau mode={other!r}, or a metric that falls as the model improves."
        if other == "max"
        else f"Give ReduceLROnPlateau mode={other!r}, or a metric that rises if the model improves.",
    )


@rule(
    Kind(
        "schedule-not-resumed",
        "warning",
        "a scheduler begins again although the optimizer continues from a checkpoint",
        rank=LEARNING + 64,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that makes the scheduler",
    )
)
def not_resumed(trace: Trace) -> list[Finding]:
    """Report schedules that begin again although the optimizer's state was loaded, and rates left over from a loaded
    state.
    """
    restarted = [
        _not_resumed(one)
        for one in trace.facts.of(ScheduleRestarted)
        if one.loaded < thresholds.RESUMED_RATE_MAX_SHARE * one.begin
        and (one.done > 0 or one.highest >= thresholds.RESUMED_RATE_JUMP * one.loaded)
    ]
    scheduled = {one.optimizer_made for one in trace.facts.of(ScheduleSeen)}
    return [
        *restarted,
        *(
            _loaded(one)
            for one in trace.facts.of(LoadedRate)
            if one.rate <= thresholds.LEFTOVER_RATE_MAX_SHARE * min(one.given, one.begin)
            and one.steps >= thresholds.LEFTOVER_RATE_MIN_STEPS
            and one.made not in scheduled
        ),
    ]


def _loaded(seen: LoadedRate) -> Finding:
    """Return the finding for an optimizer that stays at the tiny rate with which an earlier schedule ended."""
    sites = sites_of(("cause", seen.loaded), ("optimizer", seen.made))
    return Finding(
        kind="schedule-not-resumed",
        severity="warning",
        title=f"{seen.optimizer} was made with a learning rate of {number(seen.given)}, and loading the state of an "
        f"earlier run set it to {number(seen.rate)}, where the schedule of that run had ended: it stays there, for at "
        f"least {counted(seen.steps, 'step')}",
        confidence="likely",
        step=seen.step,
        sites=sites,
        evidence={
            "optimizer": seen.optimizer,
            "given_rate": seen.given,
            "loaded_rate": seen.rate,
            "first_rate": seen.begin,
        },
        advice="To begin a new stage of training, set lr of each group in optimizer.param_groups after "
        "load_state_dict(), or do not load the optimizer's state. To continue the earlier one, load its scheduler too.",
    )


def _not_resumed(seen: ScheduleRestarted) -> Finding:
    """Return the finding for a scheduler that begins at its step 0 again; only information if the rate does
    not jump.
    """
    after = f"after {counted(seen.done, 'step')} of an earlier run" if seen.done > 0 else "an earlier run"
    jumps = seen.highest >= thresholds.RESUMED_RATE_JUMP * seen.loaded
    effect = f": the rate jumps back to {number(seen.highest)}" if jumps else ""
    return Finding(
        kind="schedule-not-resumed",
        severity="warning" if jumps else "info",
        title=f"{seen.optimizer} continues {after}, where its learning rate was {number(seen.loaded)}, and "
        f"{seen.scheduler} begins at its step 0 again{effect}",
        confidence="likely",
        step=seen.step,
        sites=sites_of(("cause", seen.made), ("stepped", seen.stepped)),
        evidence={
            "scheduler": seen.scheduler,
            "optimizer": seen.optimizer,
            "done": seen.done,
            "loaded_rate": seen.loaded,
            "first_rate": seen.begin,
            "highest_rate": seen.highest,
        },
        advice="Save the scheduler's state_dict() with the optimizer's, and load both after both were made. If a new "
        "schedule is meant, make it with a new optimizer, or set lr and initial_lr of its groups.",
    )
