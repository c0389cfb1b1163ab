"""Rules for checkpointed regions: recomputations that differ, gradients that differ, state updated twice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ...basics.text import few
from ...records import Finding, FindingSite, Recomputed, RegionDiffers, RegionGradient
from ..rules import DIFFERS, HOOKS, Kind, Question, Topic, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


_SAME = "What a checkpointed function does must depend on its arguments, its parameters and torch's random state only"
#: What a change in the region means if the difference is not in a number, a flag or a parameter.
_FILLED = ": the region itself puts something where it looks for it, so the second run finds more"
#: If a random number precedes the difference.
_DRAWN = ": a random number is drawn {} it, from a generator that a checkpoint does not put back"
_ADVICE = {
    "drawn": "Draw from torch's own generator, whose state a checkpoint puts back, or draw outside the region and pass "
    "the number in as an argument.",
    "filled": "Keep caches and lists that the region fills out of it: no key-value cache while training with "
    "checkpoints (use_cache=False), or write to it outside the region, from what the region returns.",
    "extra": f"{_SAME}: here it took another way. Decide outside the region, and pass the decision in as an argument.",
    "shape": f"{_SAME}: here something else chose the size. Choose it outside the region, and pass it in as an "
    "argument.",
    "dtype": "Autocast, the default dtype or a cast was not the same in the backward. Enter autocast inside the "
    "function that is checkpointed, or around forward and backward alike.",
    "grad": "Something was frozen or unfrozen between the forward and the backward. Change requires_grad after the "
    "backward.",
    "arguments": f"{_SAME}: this number or flag must be the same in both. Choose it outside the region and pass it in, "
    "and call train() or eval() after the backward, not before it.",
    "written": "Call the optimizer's step (and whatever else writes to parameters) after the backward, or compute the "
    "region again after it. Without the checkpoint autograd would have raised an error about a modification in place.",
    "frozen": "Something was frozen or unfrozen between the forward and the backward. Change requires_grad after the "
    "backward.",
    "values": f"{_SAME}. The gradients belong to the second run's values, not to those of the loss. Random numbers "
    "come out the same only from torch's generator and with preserve_rng_state=True (the default); state that changes "
    "between the two runs must stay outside the region.",
    "unknown": "The same operations ran, and autograd kept other tensors for them: look at what changed between "
    "forward and backward (autocast and its cache of casts, requires_grad, train and eval mode), and at calls that "
    "torch does not see from Python.",
    "unheard": f"{_SAME}. No operation was seen of it: where the step was not recorded, --budget "
    "none names the one that differs.",
}
#: Matches the tensor counts in torch's error.
_COUNTS = re.compile(r"saved during (?:forward|recomputation): (\d+)")


@rule(
    Kind(
        "checkpoint-mismatch",
        "warning",
        "a checkpointed region did something else when it was recomputed; an error where torch raises",
        rank=DIFFERS + 20,
        questions=(
            Question.RAISED,
            Question.SILENTLY_WRONG,
        ),
        points_to="the operation that differed, and the checkpoint",
    )
)
def checkpoint_mismatches(trace: Trace) -> list[Finding]:
    """Report checkpointed regions that ran differently when they were recomputed.

    With ``--check checkpoints`` only those for which torch raised: the others are reported as gradients that differ.
    """
    asked = "checkpoints" in trace.facts.asked
    return [f for f in _mismatches(trace) if f.severity == "error" or not asked]


def _mismatches(trace: Trace) -> list[Finding]:
    """Return a finding for each region whose recomputation differed from its forward: an error if torch raised.

    Leaves out differences in values that come from state which the region itself changes: `checkpoint_side_effects` has
    these.
    """
    found = []
    for seen in trace.facts.of(RegionDiffers):
        if seen.how in ("values", "arguments") and not seen.raised and _changes_itself(seen, trace):
            continue
        sites = [("cause", seen.cause), ("region", seen.region), ("failed", seen.failed)]
        if seen.changed is not None:
            # The optimizer's step (or another write) is the cause; the call of train() or eval() is a guess.
            guess = seen.how == "arguments"
            sites.insert(1 if guess else 0, ("changed" if guess else "cause", seen.changed))
        if seen.drawn not in (None, seen.cause):
            sites.insert(0, ("cause", seen.drawn))
        found.append(
            Finding(
                kind="checkpoint-mismatch",
                severity="error" if seen.raised else "warning",
                title=_title(seen) + (_FILLED if _fills(seen) else _drawn(seen) if seen.drawn is not None else ""),
                confidence="certain" if seen.raised and seen.cause and seen.drawn is None else "likely",
                module=seen.module,
                tensor=f"output of {seen.op}" if seen.op else None,
                step=seen.step,
                sites=sites_of(*sites),
                evidence={
                    "difference": seen.how,
                    "forward": seen.forward,
                    "recomputation": seen.again,
                    **({"error": seen.raised.partition("Tip:")[0].strip()[:2000]} if seen.raised else {}),
                },
                advice=_ADVICE["filled" if _fills(seen) else "drawn" if seen.drawn is not None else _known(seen.how)],
            )
        )
    return found


@rule(
    Kind(
        "checkpoint-gradient-differs",
        "warning",
        "a checkpoint changes gradients",
        after="checkpoint-mismatch",
        questions=(Question.SILENTLY_WRONG,),
        points_to="the checkpoint, and the operation that differed",
    ),
    topic=Topic("checkpoints", "gradients of checkpointed regions against the same without"),
)
def gradient_differs(trace: Trace) -> list[Finding]:
    """Report regions whose gradients differ from those without the checkpoint; only with ``--check checkpoints``.

    First the mismatches for which torch did not raise, then regions measured to give other gradients that have no
    mismatch.
    """
    found = []
    silent = [f for f in _mismatches(trace) if f.severity != "error"]
    for finding in silent:
        # Torch accepted the recomputation although its values differ: so the gradients differ too.
        order = sorted(finding.sites, key=lambda s: s.role != "region")
        found.append(
            replace(
                finding,
                kind="checkpoint-gradient-differs",
                title=f"the gradients are not those of the forward: {finding.title}",
                sites=tuple(order),
            )
        )
    known = {seen.region for seen in trace.facts.of(RegionDiffers)}
    for seen in trace.facts.of(RegionGradient):
        if seen.region in known:
            continue
        lost = " (one of them is missing)" if seen.missing else ""
        found.append(
            Finding(
                kind="checkpoint-gradient-differs",
                severity="warning",
                title=f"the checkpoint changes the gradients of {few(seen.names)} by up to "
                f"{100 * seen.difference:.3g} %{lost}: on the same inputs the region without it gives others",
                confidence="certain",
                module=seen.module,
                parameters=tuple(n for n in seen.names if not n.startswith("input ")),
                sites=(FindingSite("region", seen.region),) if seen.region else (),
                evidence={"of": list(seen.names), "relative_difference": seen.difference, "missing": seen.missing},
                advice="Look at what the function does where gradient mode is off (a reentrant checkpoint's forward), "
                "at tensors that it uses and does not get as arguments, at random numbers, and at hooks set inside it; "
                "or use checkpoint(..., use_reentrant=False).",
            )
        )
    return found


def _known(how: str) -> str:
    """Return the kind of difference `how`, or ``extra``, whose advice is general, if there is no advice for it."""
    return how if how in _ADVICE else "extra"


def _fills(seen: RegionDiffers) -> bool:
    """Return whether a checkpointed region itself changed an input that it reads again when it is recomputed."""
    return seen.changed is not None and seen.how not in ("written", "arguments")


def _drawn(seen: RegionDiffers) -> str:
    """Return the end of the title that says that a random number is drawn in the region, or before the difference."""
    return _DRAWN.format("in" if seen.how == "unheard" else "before")


def _changes_itself(seen: RegionDiffers, trace: Trace) -> bool:
    """Return whether the values differ because the region changes buffers of its own modules.

    `checkpoint_side_effects` reports that.
    """
    module = seen.module or ""
    return any(
        r.region == seen.region and any(module == m or module.startswith(f"{m}.") for m in r.modules)
        for r in trace.facts.of(Recomputed)
    )


def _title(seen: RegionDiffers) -> str:
    """Return what differed between the forward of a region and its recomputation, as the title of a finding."""
    if seen.how == "extra":
        return f"{seen.op} ran in the recomputation of a checkpoint, and had not run in the forward"
    if seen.how == "missing":
        return f"{seen.op} ran in the forward of a checkpointed region, and not when it was recomputed"
    if seen.how == "other":
        return f"the recomputation of a checkpoint ran {seen.again} where the forward had run {seen.forward}"
    if seen.how == "unknown":
        return "the recomputation of a checkpoint kept other tensors than the forward, with the same operations"
    if seen.how == "unheard":
        counts = _COUNTS.findall(seen.raised)
        if len(counts) == 2:
            return (
                f"the recomputation of a checkpoint kept {counts[1]} tensors for backward, and the forward {counts[0]}"
            )
        return "the recomputation of a checkpoint kept other tensors than the forward"
    if seen.how == "arguments":
        return (
            f"{seen.op} was called with {seen.again} in the recomputation of a checkpoint, and with {seen.forward} in "
            "the forward"
        )
    if seen.how == "written":
        return (
            f"a parameter that {seen.op} uses was changed between the forward of a checkpointed region and its "
            "recomputation: the gradients are those of other weights"
        )
    if seen.how == "frozen":
        return (
            f"a parameter that {seen.op} uses {seen.again} in the recomputation of a checkpoint, and "
            f"{seen.forward.replace('requires', 'required')} in the forward"
        )
    what = {"shape": "a tensor of shape", "dtype": "a tensor of dtype", "grad": "a tensor that", "values": "values of"}
    return (
        f"{seen.op} gave {what[seen.how]} {seen.again} in the recomputation of a checkpoint, and {seen.forward} in the "
        "forward"
    )


@rule(
    Kind(
        "checkpoint-side-effect",
        "warning",
        "a module's state is changed again when a checkpoint is recomputed",
        rank=HOOKS + 30,
        questions=(Question.SILENTLY_WRONG,),
        points_to="the checkpoint",
    )
)
def checkpoint_side_effects(trace: Trace) -> list[Finding]:
    """Report buffers that a recomputation changes a second time, such as running statistics.

    Leaves out regions for which another difference is reported.
    """
    differing = {
        seen.region for seen in trace.facts.of(RegionDiffers) if seen.raised or not _changes_itself(seen, trace)
    }
    return [
        Finding(
            kind="checkpoint-side-effect",
            severity="warning",
            title=f"the recomputation of a checkpoint changed {few(seen.buffers)} a second time",
            confidence="certain",
            module=seen.modules[0],
            sites=(FindingSite("region", seen.region),) if seen.region else (),
            evidence={"buffers": list(seen.buffers), "modules": list(seen.modules)},
            advice="Batch normalisation inside a checkpoint updates its running statistics in the forward and again in "
            "the recomputation: leave it out of the region, halve its momentum, or freeze it while recomputing."
            if any(b.endswith("running_mean") for b in seen.buffers)
            else "Leave what changes its own state out of the checkpointed region, or let it change in one of the two "
            "runs only.",
        )
        for seen in trace.facts.of(Recomputed)
        if seen.region is None or seen.region not in differing
    ]
