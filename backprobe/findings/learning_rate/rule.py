"""The rule for learning rates that are zero while training goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import counted, number
from ...records import Finding, NegativeRate, ScheduleSeen, Site, ZeroRate
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: How many calls of a scheduler for each step of its optimizer show that the loop steps it too often.
MIN_CALLS_PER_STEP = 1.9


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
    too_often = schedule is not None and schedule.calls >= MIN_CALLS_PER_STEP * schedule.steps
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
