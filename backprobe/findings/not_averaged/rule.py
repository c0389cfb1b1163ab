"""Rule for losses that nothing divides by the number of accumulated batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, UndividedLoss
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

KIND = "accumulation-not-averaged"


@rule(
    Kind(
        KIND,
        "warning",
        "gradients of several batches are added up and not averaged: nothing divides the loss, or a term, by their "
        "number",
        after="loss-divided-twice",
        questions=(Question.LEARNS_BADLY,),
        points_to="the loss that should be divided",
    )
)
def accumulation_not_averaged(trace: Trace) -> list[Finding]:
    """Report losses that are means over their own batch, if a library or the script was to divide them by the number
    of accumulated batches.
    """
    return [_finding(seen) for seen in trace.facts.of(UndividedLoss)]


def _finding(seen: UndividedLoss) -> Finding:
    """Return the finding for an undivided loss: at its line, or at the backward call that goes around a library's."""
    count = seen.count
    if seen.by == "accelerate":
        title = (
            f"loss.backward() goes around accelerate, which would divide the loss by {count}, the number of "
            f"accumulated batches: gradients are {count} times too large"
        )
        advice = "Call accelerator.backward(loss): it divides the loss by gradient_accumulation_steps."
        sites = sites_of(("cause", seen.backward), ("made", seen.made), ("given", seen.given))
    elif seen.by == "transformers":
        title = (
            f"transformers adds up the gradients of {count} batches and leaves the division to the loss, which is a "
            f"mean over one batch: gradients are {count} times too large"
        )
        advice = (
            "Take the sum of the errors and divide it by num_items_in_batch, or divide the mean by the Trainer's "
            "current_gradient_accumulation_steps. Or set model_accepts_loss_kwargs of the Trainer to False: then it "
            "divides, unless it has a compute_loss_func."
        )
        sites = sites_of(("cause", seen.made), ("failed", seen.backward), ("given", seen.given))
    else:
        title = (
            f"the script divides a part of the loss by {count}, the number of accumulated batches, and not this term: "
            f"beside that part, its gradients are {count} times too large"
        )
        advice = (
            f"Add the terms first, and divide their sum by {count}. If the term is to weigh more, give it a weight."
        )
        sites = sites_of(("cause", seen.made), ("term", seen.divides), ("failed", seen.backward))
    return Finding(
        kind=KIND,
        severity="warning",
        title=title,
        confidence="likely",
        node=seen.operation,
        step=seen.step,
        sites=sites,
        evidence={"by": seen.by, "count": count, "steps": seen.steps},
        advice=advice,
    )
