"""The rule for clipping that leaves the gradients which the optimizer uses as they are, or clips them to nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ... import thresholds
from ...basics.text import number
from ...records import ACCUMULATE_SEQ, BackwardCall, Finding, UselessClipping
from ..rules import VALUES, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: Reasons for which the call and the step of the optimizer have to change places.
_WRONG_ORDER = ("used", "no-gradients")
#: Title and advice by reason.
_ORDER = (
    "Clip between backward() and step(): zero_grad(), backward(), clip, step(), in this order. Lightning calls "
    "backward() after training_step: pass gradient_clip_val to its Trainer instead."
)
_TEXTS = {
    "empty": (
        "{call} gets no parameters, and clips nothing: {optimizer} steps with gradients as they are{norm}",
        "Give it the parameters anew in each step, as {call}(model.parameters(), ...). An iterator such as "
        "model.parameters() that is kept in a variable is used up after its first use: keep list(model.parameters()).",
    ),
    "no-gradients": (
        "{call} is called while its parameters have no gradients, and clips nothing: {optimizer} steps with gradients "
        "as they are{norm}",
        _ORDER,
    ),
    "used": (
        "{call} clips gradients that {optimizer} has used already and that are cleared before its next step: it steps "
        "with gradients as they are{norm}",
        _ORDER,
    ),
    "other": (
        "{call} clips gradients of parameters that {optimizer} does not hold, and no optimizer uses them: {optimizer} "
        "steps with gradients as they are{norm}",
        "Give it the parameters of the model that {optimizer} trains.",
    ),
    "scaled": (
        "{call} runs before the gradients are unscaled (by {scale}), so its bound of {bound} {what} acts as one of "
        "{left}: a gradient norm of {before} becomes {after} in the step of {optimizer}",
        "Call scaler.unscale_(optimizer) between backward() and {call}.",
    ),
}


@rule(
    Kind(
        "clipping-without-effect",
        "warning",
        "clipping does not change the gradients that the optimizer uses, or leaves next to nothing of them",
        rank=VALUES - 1,  # an error if values become non-finite because of it
        questions=(Question.LEARNS_BADLY,),
        points_to="the call that clips",
    )
)
def clips_nothing(trace: Trace) -> list[Finding]:
    """Report calls that clip gradients without effect, or leave next to nothing of them.

    An error if losses then became non-finite, information if no gradient exceeded the bound, otherwise a warning.
    """
    blown_up = _is_blown_up(trace)
    return [
        _finding(seen, "error" if blown_up else "info" if _was_not_needed(seen) else "warning")
        for seen in trace.facts.of(UselessClipping)
        if seen.reason in _TEXTS  # a tiny bound does no harm to Adam: `update_too_small` reports those that do
    ]


def _was_not_needed(seen: UselessClipping) -> bool:
    """Return whether the call came after the optimizer had used the gradients, and none of these was above
    the bound.
    """
    return seen.reason == "used" and seen.norm is not None and seen.norm <= seen.bound


def _is_blown_up(trace: Trace) -> bool:
    """Return whether a loss became non-finite after steps with gradients far above the bound of a call
    without effect.
    """
    unclipped = (seen for seen in trace.facts.of(UselessClipping) if seen.reason not in ("scaled", "tiny-bound"))
    bounds = [seen.bound for seen in unclipped if not seen.by_value]
    if not bounds:
        return False
    rows = enumerate(trace.step_rows())
    bad = next((at for at, row in rows if row.loss is not None and not math.isfinite(row.loss)), 0)
    calls = (
        call for step in trace.steps[max(0, bad - thresholds.CLIPPING_STEPS_BEFORE) : bad] for call in step.backwards
    )
    return any(_largest_gradient(call) > thresholds.CLIPPING_BLOW_UP_FACTOR * min(bounds) for call in calls)


def _largest_gradient(call: BackwardCall) -> float:
    """Return the largest norm of a parameter's gradient in a backward call; 0 if none was measured."""
    stats = (run.grad_outputs[0] for run in call.nodes if run.node.seq == ACCUMULATE_SEQ and run.grad_outputs)
    return max((one.norm for one in stats if one is not None and one.norm is not None), default=0.0)


def _finding(seen: UselessClipping, severity: str) -> Finding:
    """Return the finding for a call that clips without effect; its title and advice depend on the reason."""
    call = "clip_grad_value_" if seen.by_value else "clip_grad_norm_"
    title, advice = _TEXTS[seen.reason]
    scale = seen.scale or 1.0
    bound, before = seen.bound, seen.norm
    texts = {"call": call, "optimizer": seen.optimizer, "norm": "", "bound": number(bound), "scale": number(scale)}
    evidence: dict[str, object] = {
        "reason": seen.reason,
        "optimizer": seen.optimizer,
        "bound": bound,
        "calls": seen.calls,
        "norm_before_clipping": before,
    }
    if seen.reason == "scaled":
        texts["what"] = "for each element" if seen.by_value else "for the norm"
        texts["left"] = number(bound / scale)
        texts["before"] = number(before) if before is not None else "unknown size"
        texts["after"] = f"at most {number(bound / scale)}"
        evidence |= {"scale": scale, "norm_after_clipping": bound / scale}
    elif before is not None and before > bound and not seen.by_value:
        texts["norm"] = f", with a norm of up to {number(before)} instead of at most {number(bound)}"
    elif before is not None:
        texts["norm"] = f", with a norm of up to {number(before)}"
    stepped = seen.stepped if seen.reason in _WRONG_ORDER and seen.stepped != seen.clipped else None
    inferred = seen.given is not None and seen.reason == "empty"  # of another model, the call itself says enough
    if inferred:
        evidence["line_inferred"] = True
    return Finding(
        kind="clipping-without-effect",
        severity=severity,
        title=title.format(**texts),
        confidence="likely" if inferred else "certain",
        step=seen.step,
        sites=sites_of(("cause", seen.clipped), ("cause", seen.given), ("stepped", stepped), ("optimizer", seen.made)),
        evidence=evidence,
        advice=advice.format(**texts),
    )
