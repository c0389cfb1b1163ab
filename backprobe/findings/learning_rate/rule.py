"""Rules for learning rates that are zero, below zero, or raised until training diverges."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import counted, number
from ...records import Finding, LossGrowth, NegativeRate, RaisedRate, ScheduleSeen, Site, ZeroRate
from ..relations.losses import growth_to_overflow
from ..rules import LEARNING, VALUES, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "learning-rate-zero",
        "warning",
        "the learning rate is zero for a large part of the run: no weight changes",
        rank=LEARNING + 9,
        questions=(Question.NOT_LEARNING,),
        points_to="the line that makes the schedule",
    )
)
def rate_is_zero(trace: Trace) -> list[Finding]:
    """Report optimizers whose learning rate is zero for a large part of the run, unless their weights change."""
    schedules = {one.made: one for one in trace.facts.of(ScheduleSeen)}
    rates = [seen for seen in trace.facts.of(ZeroRate) if seen.unchanged is not False]
    return [_finding(seen, schedules.get(seen.scheduled)) for seen in rates]


@rule(
    Kind(
        "learning-rate-negative",
        "error",
        "the learning rate is below zero: the optimizer climbs the loss",
        rank=LEARNING + 35,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that gives the rate",
        diverges=True,
    )
)
def rate_is_negative(trace: Trace) -> list[Finding]:
    """Report optimizers whose learning rate is below zero."""
    schedules = {one.made: one for one in trace.facts.of(ScheduleSeen)}
    return [_climbing(seen, schedules.get(seen.scheduled)) for seen in trace.facts.of(NegativeRate)]


@rule(
    Kind(
        "learning-rate-raised",
        "error",
        "the learning rate is raised until the loss grows from step to step, and overflows",
        rank=VALUES + 5,
        questions=(Question.NONFINITE, Question.LEARNS_BADLY),
        points_to="the line that makes the schedule, or sets the rate",
    ),
    silences=("nonfinite-forward", "nonfinite-backward"),
)
def rate_is_raised(trace: Trace) -> list[Finding]:
    """Report an optimizer whose rate was raised before the loss began to grow, for many steps and to Inf or NaN.

    If the rates of several were raised, the one with the largest rise is reported.
    """
    grown = growth_to_overflow(trace) if trace.facts.of(RaisedRate) else None
    if grown is None:
        return []
    rises = [(_raise_before(seen, grown), seen) for seen in trace.facts.of(RaisedRate)]
    factor, seen = max(rises, key=lambda one: one[0])
    if not factor:
        return []
    schedules = [one for one in trace.facts.of(ScheduleSeen) if one.calls and one.optimizer == seen.optimizer]
    own = [one for one in schedules if one.optimizer_made == seen.made] or schedules
    return [_raised(seen, own[0] if own else None, grown)]


def _rate_at(seen: RaisedRate, step: int) -> float:
    """Return the rate of an optimizer in `step`, on a line between the noted rates before and after it."""
    for (since, rate), (until, then) in pairwise(seen.rates):
        if since <= step < until:
            return rate + (then - rate) * (step - since) / (until - since)
    return seen.rates[-1 if step >= seen.rates[0][0] else 0][1]


def _raise_before(seen: RaisedRate, grown: LossGrowth) -> float:
    """Return how many times the rate that an optimizer began with it has when the loss begins to grow.

    0 if it was not raised enough, or long before.
    """
    rate = _rate_at(seen, grown.since + 1)
    early, late = _rate_at(seen, grown.since * 2 // 3), _rate_at(seen, (grown.since + grown.until) // 2)
    rose = (
        rate >= thresholds.LEARNING_RATE_MIN_LATE_RAISE * early
        or late >= thresholds.LEARNING_RATE_MIN_LATE_RAISE * rate
    )
    return rate / seen.base if rose and rate >= thresholds.LEARNING_RATE_MIN_RAISE * seen.base else 0.0


def _raised(seen: RaisedRate, schedule: ScheduleSeen | None, grown: LossGrowth) -> Finding:
    """Return the finding for a learning rate that was raised until the loss grew.

    :param schedule: the scheduler that sets the rate; ``None`` if unknown.
    """
    first, then, last = seen.rates[0][1], _rate_at(seen, grown.since + 1), _rate_at(seen, grown.until)
    cause = (schedule.made or schedule.returned) if schedule is not None else seen.assigned
    by = f"{schedule.scheduler} raises" if schedule is not None else "the script raises"
    name = schedule.scheduler if schedule is not None else ""
    return Finding(
        kind="learning-rate-raised",
        severity="error",
        title=f"{by} the learning rate of {seen.optimizer} from {number(first)} to {number(then)} by step "
        f"{grown.since}; from there on the loss grows for {counted(grown.until - grown.since, 'step')}, from "
        f"{number(grown.first)} to {number(grown.last)}, and then overflows",
        confidence="likely",
        step=grown.since,
        sites=sites_of(
            ("cause", cause or seen.made),
            ("stepped", schedule.stepped if schedule is not None else None),
            ("optimizer", seen.made if cause is not None else None),
        ),
        evidence={
            "optimizer": seen.optimizer,
            "scheduler": name,
            "first_rate": first,
            "rate_before_growth": then,
            "last_rate": last,
            "first_loss": grown.first,
            "last_loss": grown.last,
            "last_finite_step": grown.until,
        },
        advice="A rate that decays has a factor below 1. If the schedule should raise the rate, give it an end: a "
        f"highest rate below {number(then)}, after a number of steps. Check that it counts in the unit in which step() "
        "is called, batches or epochs.",
    )


def _climbing(seen: NegativeRate, schedule: ScheduleSeen | None) -> Finding:
    """Return the finding for a negative learning rate.

    :param schedule: the scheduler that sets the rate; ``None`` if unknown.
    """
    part = "" if seen.groups == seen.of else f" of {seen.groups} of {seen.of} parameter groups"
    when = f"in {counted(seen.steps, 'examined step')}, first in step {seen.step}"
    inferred = seen.scheduled is not None or (seen.given is not None and seen.returns > 1)
    stepped = schedule.stepped if schedule is not None else None
    scheduled = seen.scheduled if seen.scheduled != seen.given else None
    sites = [("cause", seen.given), ("cause", scheduled), ("stepped", stepped), ("optimizer", seen.made)]
    if seen.given is None and seen.scheduled is None:
        sites = [("cause", seen.made)]
    return Finding(
        kind="learning-rate-negative",
        severity="error",
        title=f"the learning rate{part} of {seen.optimizer} is below zero {when}, and as low as {number(seen.lowest)}: "
        "the optimizer climbs the loss",
        confidence="likely" if inferred else "certain",
        step=seen.step,
        sites=sites_of(*sites),
        evidence={
            "optimizer": seen.optimizer,
            "scheduler": seen.scheduler,
            "lowest_rate": seen.lowest,
            "highest_rate": seen.highest,
            "steps": seen.steps,
        },
        advice="Give the factor a lower bound: max(0.0, ...). Check that the schedule is made for as many calls of its "
        "step() as the loop makes. To climb on purpose, use maximize=True with a rate above zero.",
    )


def _finding(seen: ZeroRate, schedule: ScheduleSeen | None) -> Finding:
    """Return the finding for a learning rate of zero; only information if it concerns some parameter groups.

    :param schedule: the scheduler that sets the rate; ``None`` if unknown.
    """
    whole = seen.groups == seen.of
    subject = "the learning rate" if whole else f"the learning rate of {seen.groups} of {seen.of} parameter groups"
    value = "0" if seen.rate == 0 else number(seen.rate)
    since = f"from step {seen.step} on, for at least {seen.steps:,} steps" if seen.step else "in every step"
    effect = "no weight changes" if whole else "their weights stay as they are"
    before = f", after a rate of up to {number(seen.highest)}" if seen.highest else ""
    inferred = seen.scheduled is not None or (seen.given is not None and seen.returns > 1)
    stepped = ("stepped", schedule.stepped if schedule is not None else None)
    sites: list[tuple[str, Site | None]] = [("cause", seen.given), ("cause", seen.scheduled)]
    if seen.given is None and seen.scheduled is None:
        sites = [("cause", seen.made)]
    too_often = schedule is not None and schedule.calls >= thresholds.SCHEDULER_MIN_CALLS_PER_STEP * schedule.steps
    sites = [stepped, *sites] if too_often else [*sites, stepped]
    if seen.given is not None or seen.scheduled is not None:
        sites.append(("optimizer", seen.made))
    if schedule is not None and too_often:
        effect += f"; {schedule.scheduler} was stepped {schedule.calls:,} times in {schedule.steps:,} steps"
    return Finding(
        kind="learning-rate-zero",
        severity="warning" if whole else "info",
        title=f"{subject} of {seen.optimizer} is {value} {since}{before}: {effect}",
        confidence="certain" if seen.unchanged and whole and not inferred else "likely",
        step=seen.step,
        sites=sites_of(*sites),
        evidence={
            "optimizer": seen.optimizer,
            "scheduler": seen.scheduler,
            "rate": seen.rate,
            "highest_rate": seen.highest,
            "steps": seen.steps,
        },
        advice=_advice(seen, too_often),
    )


def _advice(seen: ZeroRate, too_often: bool) -> str:
    """Return advice for a rate of zero.

    :param too_often: whether the scheduler is stepped more often than the optimizer.
    """
    if not seen.highest and not seen.scheduler:
        return "Give the optimizer a learning rate above 0."
    if too_often:
        return (
            f"Step {seen.scheduler} only when the optimizer steps: once for each accumulated batch, not once for each "
            "backward(). Or make it for as many calls as the loop makes."
        )
    check = "Print the learning rate of each step for the whole run."
    if seen.given is not None:
        return (
            f"Check the function that {seen.scheduler or 'the scheduler'} calls: // gives whole numbers, and so 0 for "
            f"a fraction; its argument counts the calls of the scheduler's step(). {check}"
        )
    return (
        f"Check that {seen.scheduler or 'the scheduler'} counts in the same unit as the loop calls its step(), batches "
        f"or epochs, and that its last factor is not 0 long before the run ends. {check}"
    )
