"""The rule for tokens that end and pad rows, and are never learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import EndNeverLearned, Finding
from ..relations.sources import first_of
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "end-never-learned",
        "warning",
        "the token that ends a sequence pads it, too, and the loss leaves it out: the model never learns to stop",
        rank=LEARNING + 37,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that leaves the token out of the targets, and the loss",
    )
)
def end_never_learned(trace: Trace) -> list[Finding]:
    """Report tokens that end and pad rows, and are never a target."""
    return [_finding(trace, seen) for seen in trace.facts.of(EndNeverLearned)]


def _finding(trace: Trace, seen: EndNeverLearned) -> Finding:
    """Return the finding for one token, at the line that leaves it out of the targets, or that of the loss."""
    call, loss = first_of(trace.backwards, "nll_loss", seen.step)
    at_loss, failed = loss.site if loss else None, call.site if call else None
    causes = [seen.blanked] if seen.blanked is not None else [one for one in seen.candidates if one != at_loss]
    evidence: dict[str, object] = {
        "token": seen.token,
        "ignored": seen.ignored,
        "rows": seen.rows,
        "calls": seen.calls,
        "mask": seen.masked,
    }
    if seen.blanked is None and len(causes) > 1:
        evidence["candidates"] = [f"{one.file}:{one.line}" for one in causes]
    is_sure = seen.masked and (seen.blanked is not None or not causes)
    return Finding(
        kind="end-never-learned",
        severity="warning",
        title=f"token {seen.token} ends all {seen.rows:,} rows that were compared and pads the shorter ones, and the "
        "loss ignores it everywhere: the model never learns to stop",
        confidence="certain" if is_sure else "likely",
        module=(loss.module or None) if loss else None,
        node=loss.name if loss else None,
        step=seen.step,
        sites=sites_of(
            *(("cause", one) for one in causes),
            ("compared" if causes else "cause", at_loss),
            ("stops", seen.stop),
            ("failed", failed),
        ),
        evidence=evidence,
        advice="Keep the first end token of each row as a target: leave targets out by the attention mask, or by the "
        "lengths of the rows. Or pad with a token of its own.",
    )
