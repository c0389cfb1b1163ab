"""Findings from alarms: one of each kind, for the layer where it began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import number
from ...records import Finding, FindingSite, OptimizerSeen
from ..rules import GRADIENTS_INVALID, LEARNING, Kind, Question, Topic, rule
from .alarms import (
    ALARMS,
    GROWTH_BOUNDS,
    INITIAL_GROWTH_BOUNDS,
    OF_PARAMETERS,
    WHOLE,
    Alarm,
    Monitor,
    alarms,
)

if TYPE_CHECKING:
    from ...traces import Trace

__all__ = ["ALARMS", "Alarm", "Monitor", "alarms", "finding_of"]

_SAID = {
    "attention_logit": "the greatest attention logit",
    "activation_rms": "the RMS of the activations",
    "weight_rms": "the RMS of the weight",
    "weight_gain": "what the weight multiplies the RMS of its input by",
    "headroom": "the room above the greatest activation",
    "adam_ratio": "the gradient over the root of Adam's second moment",
    "attention_entropy": "the entropy of the attention",
    "stable_rank": "the stable rank",
}
#: Kinds from which many others follow.
_DIVERGES = ("update-too-large", "divergence-ahead", "loss-spike")
#: Quantities compared with their own earlier value; the others are compared with a bound.
_WAS = {*GROWTH_BOUNDS, *INITIAL_GROWTH_BOUNDS, "weight_rms", "attention_entropy", "stable_rank"}
_ADVICE = {
    "update-too-large": "Lower the learning rate (of this group, if the others are well), or warm it up over some "
    "hundred steps; healthy updates are about a thousandth of the weight.",
    "divergence-ahead": "Look at this layer first: lower its learning rate or warm up longer, clip gradients, "
    "normalise queries and keys (QK norm), add weight decay, or keep it in float32. Going back to a checkpoint before "
    "that step and leaving out the batches around it is what people do where it came suddenly.",
    "loss-spike": "Look at the batches of these steps, and at what changed there (a schedule, a loss weight, data from "
    "another source). Going back to a checkpoint before that step and leaving the batches out, clipping gradients, and "
    "a lower beta2 of Adam are what people do.",
    "attention-collapse": "Normalise queries and keys (QK norm), lower the learning rate of these weights or warm it "
    "up, or bound the logits. Rows that look at one place pass no gradient to queries and keys.",
    "rank-collapse": "Lower the learning rate of this layer, add or keep a residual path around it and a norm before "
    "it, and look at what it is given: inputs that are alike make such a weight.",
    "dead-units": "Lower the learning rate (one large update pushes units below zero for good), look at the bias and "
    "at how inputs are scaled, or use a leaky activation (LeakyReLU, GELU).",
    "saturated-units": "Scale the inputs and the first weights down (Xavier), lower the learning rate, put a norm "
    "before the activation, or use one that does not saturate. Units at their bounds pass almost no gradient.",
    "update-too-small": "Look at the learning rate of this group, at a schedule that never warms up, and at gradients "
    "that are scaled down on the way. Weights in bfloat16 lose updates below their last digit: keep a float32 copy of "
    "them, or let the optimizer round stochastically.",
}


@rule(
    Kind(
        "update-too-large",
        "warning",
        "updates are a large part of the weights, for many steps",
        rank=LEARNING + 12,
        questions=(Question.FADES_OR_GROWS,),
        points_to="the optimizer",
    ),
    Kind(
        "divergence-ahead",
        "warning",
        "a level grows that ends in a divergence",
        after="update-too-large",
        questions=(Question.FADES_OR_GROWS,),
        points_to="the level that grows, and the optimizer",
    ),
    Kind(
        "loss-spike",
        "warning",
        "the loss jumps far above its earlier values, and stays there",
        after="divergence-ahead",
        questions=(Question.LEARNS_BADLY,),
        points_to="the optimizer, and the step",
    ),
    Kind(
        "attention-collapse",
        "warning",
        "attention looks at one place, and the loss is high",
        after="loss-spike",
        questions=(Question.LEARNS_BADLY,),
        points_to="the layer and head, and the optimizer",
    ),
    Kind(
        "rank-collapse",
        "warning",
        "a weight degenerates to rank one",
        after="attention-collapse",
        questions=(Question.LEARNS_BADLY,),
        points_to="the layer, and the optimizer",
    ),
    Kind(
        "dead-units",
        "warning",
        "almost all units of a layer are zero for the whole batch",
        after="rank-collapse",
        questions=(Question.LEARNS_BADLY,),
        points_to="the layer, and the optimizer",
    ),
    Kind(
        "saturated-units",
        "warning",
        "almost all of a tanh or sigmoid is at its bounds",
        after="dead-units",
        questions=(Question.LEARNS_BADLY,),
        points_to="the layer, and the optimizer",
    ),
    also=("update-too-small",),
    silenced_by=(GRADIENTS_INVALID, "exploding-gradient"),
    topic=Topic("levels", "levels that say that a run will diverge, or trains badly", whole_script=True),
)
def levels(trace: Trace) -> list[Finding]:
    """Report one finding for each kind of alarm, up to the first kind that belongs to a divergence.

    Later alarms mostly follow from it and are listed in its evidence.
    """
    found = alarms(trace.statistics)
    end = next((at for at, alarm in enumerate(found) if alarm.kind in _DIVERGES), len(found)) + 1
    made = trace.facts.of(OptimizerSeen)
    sites = tuple(FindingSite("optimizer", one.site) for one in made if one.site is not None)[:1]
    last = len(found[:end]) - 1
    return [finding_of(alarm, found[end:] if at == last else (), sites) for at, alarm in enumerate(found[:end])]


def finding_of(alarm: Alarm, later: Sequence[Alarm], sites: tuple[FindingSite, ...]) -> Finding:
    """Build the finding of an alarm.

    :param later: alarms that follow from it.
    :param sites: the line where its optimizer was created.
    """
    whole = alarm.quantity == WHOLE
    is_weight = alarm.quantity in OF_PARAMETERS or (whole and alarm.name.endswith((".weight", ".bias")))
    return Finding(
        kind=alarm.kind,
        severity="warning",
        title=_title(alarm),
        confidence="likely" if alarm.kind.startswith("update-") or whole else "possible",
        module=None if whole and alarm.name == "loss" else alarm.name.rpartition(".")[0] if is_weight else alarm.name,
        parameters=(alarm.name,) if is_weight else (),
        step=alarm.since,
        sites=sites,
        evidence={
            "quantity": alarm.quantity,
            "value": alarm.value,
            "before": alarm.before,
            "since": alarm.since,
            "noticed": alarm.step,
            **({"later": [f"step {one.step}: {one.kind} of {one.name}" for one in later]} if later else {}),
        },
        advice=_ADVICE[alarm.kind],
    )


def _title(alarm: Alarm) -> str:
    """Return the title of an alarm's finding: the value, what it is compared with, the layer and the step."""
    name, step, since = alarm.name, alarm.step, alarm.since
    value, before = number(alarm.value), number(alarm.before)
    share, bound = number(100 * alarm.value), number(100 * alarm.before)
    if alarm.kind == "update-too-large":
        if alarm.before < thresholds.UPDATE_RATIO_BOUND:
            return f"updates of {name} are {share}% of it in step {step}, those of most matrices {bound}%"
        return f"updates of {name} are {share}% of it in step {step}, and more than {bound}% since step {since}"
    if alarm.kind == "loss-spike":
        with_it = "" if name == "loss" else f"; {name} changed with it"
        return f"the loss jumped from {before} to {value} in steps {since} to {step}, by the median of these{with_it}"
    if alarm.kind == "dead-units":
        return f"{share}% of the units of {name} are zero for the whole batch in step {step}, since step {since}"
    if alarm.kind == "saturated-units":
        return f"{share}% of what {name} gives is at its bounds in step {step}, since step {since}"
    if alarm.quantity == "unchanged":
        return f"{share}% of the elements of {name} stay as they are in step {step}: its updates are rounded away"
    if alarm.kind == "update-too-small":
        return (
            f"updates of {name} are {value} of it in step {step}, and were no more in {thresholds.STUCK_LOOKS} "
            "looks: it hardly moves"
        )
    said = f"{_SAID[alarm.quantity]} of {name} is {value} in step {step}; "
    if alarm.quantity == "weight_gain" and since < thresholds.LEVELS_FIRST_STEP:
        return f"{name} multiplies the RMS of its input by about {value} from the start; most do by {before}"
    return said + (f"it was {before}" if alarm.quantity in _WAS else f"its bound is {before}")
