"""The rule for losses over tokens whose targets are not the next tokens of the sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, MisalignedTargets
from ..relations.sources import first_of
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: What the target of a position is, by its offset, and the likely reason.
_TEXTS = {
    2: ("the token after the next one", "they were shifted twice"),
    0: ("the token itself, which the model sees", "they were not shifted"),
    -1: ("the token before it, which the model has seen", "they were shifted the wrong way"),
}


@rule(
    Kind(
        "targets-misaligned",
        "warning",
        "the targets of a loss over tokens are not the next tokens: they were shifted twice, not at all, or back",
        rank=LEARNING + 31,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that shifts the labels, and the loss",
    )
)
def targets_misaligned(trace: Trace) -> list[Finding]:
    """Report losses over tokens whose targets are not the next tokens of the input, such as labels shifted twice."""
    return [_finding(trace, seen) for seen in trace.facts.of(MisalignedTargets)]


def _finding(trace: Trace, seen: MisalignedTargets) -> Finding:
    """Return the finding for one offset between tokens and targets, at the line of the loss."""
    call, loss = first_of(trace.backwards, "nll_loss", seen.step)
    what, why = _TEXTS.get(seen.offset, (f"the token {seen.offset} positions after it", "they were shifted too far"))
    at_loss = loss.site if loss else None
    shifts = [("shifted", site) for site in seen.lines if site != at_loss] if seen.offset != 0 else []
    return Finding(
        kind="targets-misaligned",
        severity="warning",
        title=f"the target of each position is {what}, for {seen.share:.0%} of the {seen.tokens:,} targets that were "
        f"compared: {why}",
        confidence="certain",
        module=(loss.module or None) if loss else None,
        node=loss.name if loss else None,
        step=seen.step,
        sites=sites_of(*shifts, ("cause", at_loss), ("failed", call.site if call else None)),
        evidence={"offset": seen.offset, "share": round(seen.share, 4), "tokens": seen.tokens, "calls": seen.calls},
        advice="A language model predicts the next token: compare the scores of all positions but the last with the "
        "tokens from the second on. The models of transformers shift the labels themselves: give them "
        "labels=input_ids.",
    )
