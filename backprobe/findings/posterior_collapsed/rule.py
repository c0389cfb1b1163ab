"""The rule for variational autoencoders whose codes carry nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ... import thresholds
from ...records import CollapsedPosterior, Finding, GrownFactor
from ..rules import GRADIENTS_INVALID, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "posterior-collapsed",
        "warning",
        "a variational autoencoder does not use its codes: their distribution is that of the prior for every sample",
        after="embeddings-collapse",
        questions=(Question.LEARNS_BADLY, Question.NOT_LEARNING),
        points_to="the reconstruction's error, and the divergence that outweighs it",
    ),
    silenced_by=(GRADIENTS_INVALID,),
)
def posterior_collapsed(trace: Trace) -> list[Finding]:
    """Report variational autoencoders whose codes carry nothing; only information if the weights of the
    loss are usual.
    """
    return [_finding(seen) for seen in trace.facts.of(CollapsedPosterior)]


def _finding(seen: CollapsedPosterior) -> Finding:
    """Return the finding for codes that carry nothing: at the line that computes the factor that grew, if one did, and
    otherwise at the line that compares the reconstruction.
    """
    if seen.grown is not None:
        return _finding_of_growth(seen, seen.grown)
    outweighs = seen.ratio is not None and seen.ratio >= thresholds.KL_WEIGHT_MIN_RATIO
    title = "the codes carry nothing: at the end of the run the posterior of each sample is the prior"
    if outweighs:
        title += f"; beside {seen.op} the divergence counts {seen.ratio:,.3g} times as much as in the evidence lower "
        title += "bound"
    return Finding(
        kind="posterior-collapsed",
        severity="warning" if outweighs else "info",
        title=title,
        confidence="likely" if outweighs else "possible",
        step=seen.first,
        sites=sites_of(
            ("cause" if outweighs else "compared", seen.compared), ("term", seen.site), ("failed", seen.failed)
        ),
        evidence=_evidence(seen),
        advice=_advice(seen)
        if outweighs
        else "The decoder does without its code. Raise the weight of the divergence "
        "from 0 over the first steps, or make the decoder weaker.",
    )


def _finding_of_growth(seen: CollapsedPosterior, grown: GrownFactor) -> Finding:
    """Return the finding for codes that a growing factor of the divergence has emptied."""
    verb = "keeps growing" if grown.is_growing else "grew too far"
    used = f"at step {grown.step:,} the codes still carried {grown.divergence:.2g} nats"
    lines = [line for line in (grown.computed, grown.multiplied) if line is not None]
    cause, rest = (lines[0], lines[1:]) if lines else (seen.site, [])
    return Finding(
        kind="posterior-collapsed",
        severity="warning",
        title=f"the factor of the divergence {verb}, from {grown.before:.3g} to {grown.after:.3g}: {used}, and now the "
        "posterior of each sample is the prior",
        confidence="likely",
        step=seen.first,
        sites=sites_of(
            ("cause", cause), *(("multiplied", line) for line in rest), ("term", seen.site), ("failed", seen.failed)
        ),
        evidence={
            **_evidence(seen),
            "factor": [grown.before, grown.after],
            "divergence_before": grown.divergence,
            "step_before": grown.step,
            "candidates": [f"{line.file}:{line.line}" for line in lines],
        },
        advice="Let the warm-up end: min(1.0, ...) stops where the divergence counts as much as in the evidence lower "
        "bound. Beyond that, codes cost more and more, until none is worth its price.",
    )


def _evidence(seen: CollapsedPosterior) -> dict[str, object]:
    """Return the numbers of a collapse."""
    return {
        "divergence": seen.divergence,
        "codes": seen.codes,
        "elements": seen.elements,
        "ratio": seen.ratio,
    }


def _advice(seen: CollapsedPosterior) -> str:
    """Return advice for a divergence that outweighs the reconstruction: the factor by which to lower it.

    If a mean over elements stands beside a sum over codes, it first says to use sums in both.
    """
    factor = f"{1 / (seen.ratio or 1):.2g}"
    if not math.isclose(seen.ratio or 0, seen.elements, rel_tol=thresholds.KL_WEIGHT_MAX_RATIO_ERROR):
        return f"Multiply the divergence by {factor}, or raise its weight from 0 to that over the first steps."
    return (
        f"{seen.op} is divided by the {seen.elements:,} elements of a sample, and the divergence is a sum over the "
        "code. Sum both over the elements of a sample, and take the mean over the batch only; or multiply the "
        f"divergence by {factor}."
    )
