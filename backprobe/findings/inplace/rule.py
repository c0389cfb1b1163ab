"""The rule for a saved tensor that was modified in place before the backward needed it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...records import BackwardCall, Facts, Finding, RefusedToCompile, Site
from ..relations.inferred_lines import LINE_INFERRED
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
        points_to="the line that wrote, and the line that saved; or the line that keeps a graph for the next iteration",
    ),
    each_call=True,
    invalidates_gradients=True,
)
def inplace(call: BackwardCall, facts: Facts) -> list[Finding]:
    """Return the finding for a backward call that failed because a saved tensor was changed in place afterwards.

    If an optimizer's step changed it and the graph reaches back into an earlier iteration, the finding names the line
    that carries the old graph on.
    """
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
    is_observed = change.site is not None and not change.inferred
    sites = sites_of(("mutated", change.site), ("saved", change.region or run.site), ("failed", call.site))
    by = _by(change.op, change.site.text if change.site else "")
    title, advice = f"{by} changed {what} that {saver} had saved for backward", _advice(change.op)
    inferred: dict[str, object] = {}
    if raised.inferred and change.region is None:
        inferred["saved_line"] = LINE_INFERRED
    if change.inferred:
        inferred |= {"inferred": INFERRED, "candidates": _places(change.candidates)}
    carried = change.carried if change.op.endswith(".step") else None
    if carried is not None and carried.node is not None:
        if carried.assigned is not None:
            inferred["carried_line"] = ASSIGNMENT_INFERRED
        entry = call.nodes[carried.node]
        old = call.nodes[carried.old].node.op or call.nodes[carried.old].name
        sites = sites_of(("carried", carried.assigned), ("reused", entry.site), ("reused", carried.carried)) + sites
        earlier = "this step" if carried.freed_step == call.step else f"step {carried.freed_step}"
        title = (
            f"{entry.node.op or entry.module or entry.name} took a result of {old} with its graph from an earlier "
            f"iteration (backward call in {earlier}); {change.op} has changed {what} since, which that graph needs"
        )
        advice = _DETACH
    return [
        Finding(
            kind="inplace",
            severity="error",
            title=title,
            confidence="certain" if is_observed and raised.certain and "carried_line" not in inferred else "likely",
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
                **inferred,
                "call": run.node.call,
            },
            advice=advice,
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


#: Advice if the graph of an earlier iteration is a part of this one.
_DETACH = (
    "Detach the result before the next iteration uses it: state = state.detach(), or detach each tensor of a tuple. "
    "The optimizer changes the weights in each step, so a backward call cannot go through the graph of an earlier "
    "iteration. After that, remove retain_graph=True."
)
ASSIGNMENT_INFERRED = "the line that carries the result on is read from the source: it assigns the variable that has it"
INFERRED = "operations were not recorded in this step: of the lines that can have written, this is the likeliest"


def _places(sites: tuple[Site, ...]) -> list[str]:
    """Return sites as texts ``file:line source``, for the evidence."""
    return [f"{site.file}:{site.line} {site.text}" for site in sites]


def _by(op: str, text: str) -> str:
    """Return the subject of a title: the source text of the writing line, without comment, and the operation.

    If no operation is known, it says that backprobe did not see the write.
    """
    text = text.partition("  #")[0]
    if not op:
        return "something that backprobe did not see (code outside Python, or in another thread)"
    return f"{text!r} ({op})" if text else op


def _advice(op: str) -> str:
    """Return advice for an in-place write by the operation `op`; optimizers, embeddings and item assignment have their
    own.
    """
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
