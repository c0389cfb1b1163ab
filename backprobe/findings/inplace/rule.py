"""The rule for a saved tensor that was modified in place before the backward needed it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...records import BackwardCall, Facts, Finding, RefusedToCompile, Site
from ..rules import WRONG, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "inplace",
        "error",
        "an operation changed a tensor in place that the backward needed",
        rank=WRONG,
        questions=(Question.RAISED,),
        points_to="the line that wrote, and the line that saved",
    ),
    each_call=True,
    invalidates_gradients=True,
)
def inplace(call: BackwardCall, facts: Facts) -> list[Finding]:
    change, raised = call.mutation, call.raised
    if change is None or raised is None or raised.node is None:
        return []
    if not change.op:  # a graph that the compiler refused may have the write: its code ran as it is, unseen
        refused_here = [seen for seen in facts.of(RefusedToCompile) if seen.step == call.step]
        if len(refused_here) == 1:
            change = replace(change, op=refused_here[0].op, site=refused_here[0].site, inferred=True)
    run = call.nodes[raised.node]
    what = change.tensor or "a tensor"
    saver = "the checkpoint" if change.region is not None else run.node.op or run.name
    sites = sites_of(("mutated", change.site), ("saved", change.region or run.site), ("failed", call.site))
    by = _by(change.op, change.site.text if change.site else "")
    return [
        Finding(
            kind="inplace",
            severity="error",
            title=f"{by} changed {what} that {saver} had saved for backward",
            confidence="certain" if change.site is not None and raised.certain and not change.inferred else "likely",
            module=run.module,
            node=run.name,
            tensor=change.tensor,
            step=call.step,
            sites=tuple(sites),
            evidence={
                "saved_version": change.saved_version,
                "found_version": change.found_version,
                "shape": list(change.shape),
                "op": change.op,
                "mutating_module": change.module,
                **({"inferred": INFERRED, "candidates": _places(change.candidates)} if change.inferred else {}),
                "call": run.node.call,
            },
            advice=_advice(change.op),
        )
    ]


@rule(also=("inplace",), invalidates_gradients=True)
def refused(trace: Trace) -> list[Finding]:
    """Report in-place writes that ``torch.compile`` refused while compiling, before anything ran."""
    return [
        Finding(
            kind="inplace",
            severity="error",
            title=f"{_by(seen.op, seen.site.text)} changes what {seen.saver} has saved for backward, so that torch "
            "does not compile it",
            confidence="certain",
            module=seen.module,
            step=seen.step,
            sites=sites_of(("mutated", seen.site), ("saved", seen.saved_at), ("failed", seen.called)),
            evidence={
                "saved_version": seen.saved_version,
                "found_version": seen.found_version,
                "shape": list(seen.shape),
                "op": seen.op,
                "compiled": True,
            },
            advice=_advice(seen.op),
        )
        for seen in trace.facts.of(RefusedToCompile)
    ]


INFERRED = "operations were not recorded in this step: of the lines that can have written, this is the likeliest"


def _places(sites: tuple[Site, ...]) -> list[str]:
    return [f"{site.file}:{site.line} {site.text}" for site in sites]


def _by(op: str, text: str) -> str:
    text = text.partition("  #")[0]
    if not op:
        return "something that backprobe did not see (code outside Python, or in another thread)"
    return f"{text!r} ({op})" if text else op


def _advice(op: str) -> str:
    if op.endswith(".step"):
        return (
            "The optimizer changed a weight between the forward that used it and the backward that needs it: call "
            "backward before the step, or run the forward again after it."
        )
    if op in ("embedding", "embedding_bag"):
        return (
            "max_norm renormalises the embedding's weight in place at every lookup: use a clone of the weight "
            "elsewhere (embed.weight.clone()), or do all lookups before it."
        )
    if op == "__setitem__":
        return "Collect the parts in a list and use torch.stack or torch.cat, or write into a clone of the tensor."
    return (
        "Write the result to a new tensor (x = x + y for x += y, relu(x) for relu_(x)), or clone it before the change."
    )
