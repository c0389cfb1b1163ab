"""Findings that describe a non-finite value and its origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...basics.text import counted, few
from ...basics.torch_texts import COMPILED
from ...ops import FINITE, GAPS, ZERO, info
from ...records import BackwardCall, BadNode, BadOp, Born, Finding, InferredLine, Inside, NodeRun, Root, TensorStat
from ..rules import candidates, sites_of
from .provenance import is_half

RECORD_ALL = "`backprobe run --budget none` records every step, and names the line."
INFERRED = "nodes were not looked at in this step; it follows from which parameters got a bad gradient"

#: Of a parameter that was finite when a step with several calls of a closure began.
BETWEEN_CALLS = ", between the calls of the optimizer's closure"
WRITTEN_IN_CLOSURE = (
    "The optimizer's update between two calls of its closure, or the gradients that it used, made it so."
)


def forward_finding(
    call: BackwardCall,
    op: BadOp,
    begins: bool,
    reached: str,
    victim: NodeRun | None = None,
    in_closure: bool = False,
) -> Finding:
    """Return the finding for the first forward operation whose result is NaN or Inf, or for what brought the value into
    it.

    That is an operation outside the graph, an input from outside, or weights that training had written to.

    :param begins: the operation's inputs hold no Inf that was put there on purpose.
    :param reached: what the non-finite value reached, as the end of a sentence.
    :param victim: the node whose gradient became non-finite, if the loss is finite.
    :param in_closure: the forward is a later call of a closure in one step.
    """
    entered = None
    sure = not (begins and op.guessed)
    # A constant that the script filled in is data: the relevant line is the one that uses it.
    if begins and op.origin is not None and not info(op.origin.op).is_fill:
        reached = f"{reached} (it entered the graph in {op.op})"
        entered, op = op, op.origin
    outside = [t for t in op.inputs if t.bad and not t.made] if begins else []
    source = "" if begins else f"; {_held(op)}, put there on purpose"
    if outside:
        named = ", ".join(t.name or f"an input of shape {list(t.shape)}" for t in outside)
        source = f"; {nan_or_inf(outside[0].bad)} was already in {named}, which came from outside the graph"
    evidence = {
        "op": op.op,
        "values": str(op.output),
        "nan": op.output.nan,
        "first_elements": [list(i) for i in op.output.first],
        "nonfinite_inputs": [t.name for t in outside],
        "call": op.call,
        "op_is_root": any(r.node is not None and op.first <= call.nodes[r.node].node.seq <= op.seq for r in call.roots),
    }
    if too_large := begins and not outside and _is_too_large(op.op, op.output.nan):
        evidence["too_large"] = True
    if victim is not None:
        evidence["first_bad_gradient"] = victim.name
    trained = {run.parameter for run in call.nodes if run.parameter is not None}
    if outside and call.step > 0 and all(t.name in trained for t in outside):
        return _weights_finding(call, op, outside, reached, evidence, in_closure)
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=f"{op.op} produced {op.output} {'outside the graph' if entered else 'in the forward'}; {reached}{source}",
        confidence="certain" if sure else "likely",
        module=op.module,
        tensor=outside[0].name if outside and outside[0].name else f"output of {op.op}",
        step=call.step,
        sites=sites_of(("cause", op.site), ("entered", entered.site if entered else None), ("failed", call.site)),
        evidence=evidence,
        advice=(
            f"Look at {' and '.join(t.name or 'that input' for t in outside)} before the model sees it: "
            "torch.isfinite(t).all() tells."
            if outside
            else (SOFTMAX if begins else MASKED)
            if "softmax" in op.op
            else ATTENTION
            if "attention" in op.op
            else GROWN
            if too_large
            else info(op.op).remedy or KEEP_INSIDE
        ),
    )


def _weights_finding(
    call: BackwardCall,
    op: BadOp,
    weights: Sequence[TensorStat],
    reached: str,
    evidence: dict[str, object],
    in_closure: bool,
) -> Finding:
    """Return the finding for `weights` of `op` that were not finite when the forward, or a closure, began.

    Training had written to them; the operation is only where they entered the graph.
    """
    named = ", ".join(str(t.name) for t in weights)
    held = f"became {nan_or_inf(weights[0].bad)}{BETWEEN_CALLS}"
    if not in_closure:
        held = f"held {weights[0].bad} when the forward began"
    before = f"the optimizer's step, or a gradient of step {call.step - 1}"
    unrecorded = "If that step was not recorded, --budget none records it."
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=f"{named} {held}; {reached}",
        confidence="likely" if op.guessed else "certain",
        module=op.module,
        tensor=weights[0].name,
        parameters=tuple(str(t.name) for t in weights),
        step=call.step,
        sites=sites_of(("entered", op.site), ("failed", call.site)),
        evidence={**evidence, "held": True},
        advice=WRITTEN_IN_CLOSURE if in_closure else f"What wrote to it last made it so: {before}. {unrecorded}",
    )


def _named(saved: TensorStat) -> str:
    """Return what a saved tensor is called: torch calls the first input ``self``."""
    return "input" if saved.name == "self" else saved.name


def _zeros(tensor: TensorStat) -> str:
    """Return the number of zeros in a tensor as text, such as ``3 zeros``."""
    return counted(tensor.zeros or 0, "zero")


def _held(op: BadOp) -> str:
    """Return, as part of a title, how many elements of an operation's first non-finite input were Inf."""
    bad = next((t.bad for t in op.inputs if t.bad), None)
    if bad is None or not bad.numel:
        return "its input was already Inf"
    return f"{bad.inf:,} of its {bad.numel:,} inputs were already Inf"


def backward_finding(
    call: BackwardCall, first: BadNode, run: NodeRun, origin: BadOp | None, region: Inside | None
) -> Finding:
    """Return the finding for a node that turned finite gradients into NaN or Inf: why, at which line, and what to do.

    :param first: the recorded values of the node `run`, and its saved tensors.
    :param origin: the bad forward result that leads to the node, if there is one.
    :param region: what a second execution of a compiled region showed, if the node is one.
    """
    too_large = grown = False
    bad_saved = [t for t in first.saved if t.bad]
    by_torch = run.name[-1:].isdigit()  # nothing is known of what custom functions do with zeros
    zero_saved = [t for t in first.saved if t.zeros and (info(run.name).singular_at == ZERO or not by_torch)]
    gaps = None
    if info(run.name).singular_at == GAPS:
        gaps = "singular values" if info(run.name).name == "linalg_svd" else "eigenvalues"
    parameters = tuple(
        dict.fromkeys(
            r.parameter
            for r in call.nodes
            if r.parameter is not None and any(g and g.norm is not None and g.norm - g.norm for g in r.grad_outputs)
        )
    )
    if region is not None and region.how == "read":
        how = "it is in a compiled region, of which its derivative is the one that is not finite everywhere"
    elif bad_saved and first.zero_incoming:
        how = (
            f"a gradient of zero met a non-finite {_named(bad_saved[0])}: 0 times {nan_or_inf(bad_saved[0].bad)} is NaN"
        )
    elif bad_saved:
        how = f"its saved {_named(bad_saved[0])} was not finite"
    elif gaps and not first.inferred:
        how = f"its derivative divides by the differences between the {gaps}, and two of them are equal or nearly so"
    elif zero_saved:
        how = f"its saved {_named(zero_saved[0])} holds {_zeros(zero_saved[0])}, where the derivative is not finite"
    elif first.inferred:
        how = "of the operations behind the bad gradients, it is the only one that can have done so"
    elif too_large := is_half(run) and not first.values.nan:
        how = "float16 holds no number above 65,504"
    elif grown := not first.values.nan and info(run.node.op or run.name).forward == FINITE and not _is_singular(run):
        how = "a product of them and of what it had kept is too large for the dtype"
    else:
        how = "its derivative is not finite for the values that it had kept"
    outside = [t.name for t in origin.inputs if t.bad] if origin is not None else []
    op, site, module, second = run.node.op or run.name, run.site, run.module, None
    if first.of is not None and first.of.site is not None:
        op, site, module, second = f"the derivative of {first.of.op}", first.of.site, first.of.module, run.site
    sure = not first.inferred
    if region is not None:
        op, site, second, sure = region.op, region.site, run.site, region.sure
        module = region.module if region.how == "backward" else module
    return Finding(
        kind="nonfinite-backward",
        severity="error",
        title=f"the backward of {op} produced {nan_or_inf(first.values) if first.inferred else first.values} from "
        f"finite gradients: {how}",
        confidence="certain" if sure else "likely",
        module=module,
        node=run.name,
        tensor=f"gradient {first.output} of {run.name}",
        parameters=parameters,
        step=call.step,
        sites=sites_of(("cause", site), ("region" if region is not None else "derived", second), ("failed", call.site)),
        evidence={
            "values": str(first.values),
            "nan": first.values.nan,
            "first_elements": [list(i) for i in first.values.first],
            "incoming_zeros": first.zero_incoming,
            "saved": {t.name: (str(t.bad) if t.bad else _zeros(t)) for t in first.saved if t.bad or t.zeros},
            "nonfinite_inputs": [n for n in outside if n],
            **({"too_large": True} if grown else {}),
            **({"inferred": INFERRED} if first.inferred else {}),
        },
        advice=(
            "A mask or torch.where after the operation does not keep its backward finite: the masked elements get a "
            "gradient of zero, and zero times Inf or NaN is NaN. Make the operation's input safe first, for the "
            "masked elements too (torch.where(mask, x, safe) before it)."
            if first.zero_incoming and (bad_saved or zero_saved)
            else "Multiply the loss by less: torch.amp.GradScaler finds a factor, and leaves out the steps in which it "
            "was too large. bfloat16 and float32 hold such gradients."
            if too_large
            else GROWN
            if grown
            else f"Use the {gaps} alone if they are all that the loss needs: their derivative is finite. Else break "
            "ties: add a small diagonal of different numbers to the matrix, or detach the vectors."
            if gaps
            else f"Keep the input of {op} away from the point where its derivative is not finite: add a small eps to "
            "it, or clamp it."
        ),
    )


def with_inferred_line(found: Finding, line: InferredLine | None) -> Finding:
    """Return `found` with lower confidence and the candidate lines, if its line was inferred; unchanged if `line` is
    ``None``.
    """
    if line is None:
        return found
    sites = found.sites
    if line.candidates and not any(one.role == "cause" for one in sites):
        sites = (*sites_of(("cause", line.candidates[0])), *sites)
    cause = next((one.site for one in sites if one.role == "cause"), None)
    others = [one for one in line.candidates if cause is None or (one.file, one.line) != (cause.file, cause.line)]
    told = ""
    if others:
        lines = few(
            [f"line {one.line}" if cause and one.file == cause.file else f"{one.file}:{one.line}" for one in others]
        )
        verb = "has" if len(others) == 1 else "have"
        told = f" The line is inferred from recorded steps; {lines} {verb} such an operation, too. {RECORD_ALL}"
    return dataclasses.replace(
        found,
        confidence="likely" if found.confidence == "certain" else found.confidence,
        sites=sites,
        evidence={
            **found.evidence,
            "line_inferred": True,
            **candidates((cause, *others) if cause is not None else others),
        },
        advice=f"{found.advice}{told}",
    )


def unobserved_finding(call: BackwardCall, run: NodeRun, root: Root, not_recorded: bool = False) -> Finding:
    """Return the finding for a non-finite loss if it is not known which operation produced it.

    :param run: the node of the loss.
    :param not_recorded: the forward was not recorded; otherwise no inspected operation produced it.
    """
    what = nan_or_inf(root.bad)
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=f"the loss is {what}; this step was not recorded, and its graph does not tell which operation made it so"
        if not_recorded
        else f"the loss is {what}; the operation that made it so was not seen",
        confidence="possible",
        module=run.module,
        node=run.name,
        tensor="loss",
        step=call.step,
        sites=sites_of(("cause", run.site), ("failed", call.site)),
        evidence={"nan": root.bad.nan if root.bad else 0, "seen": False, "op_is_root": True},
        advice=RECORD_ALL
        if not_recorded
        else "Results inside compiled regions, of tensor subclasses and in other threads are not looked at: run the "
        "script without torch.compile, or check the parts of the loss with torch.isfinite.",
    )


#: Of an operation that is finite wherever its dtype can hold the result.
GROWN = (
    "Its inputs are finite, and the result is too large for its dtype. In float16, compute it in float32. In others, "
    "the mistake is seldom in this line but in what made the values grow: a learning rate that is too large, gradients "
    "that add up, are still scaled or are not clipped, a change of the weights outside the optimizer."
)


def _is_singular(run: NodeRun) -> bool:
    """Return whether the operation of a node is undefined or infinite for some input or arguments."""
    facts = info(run.node.op or run.name)
    return bool(facts.singular_at) or facts.singular_for_some_arguments


def _is_too_large(op: str, nan: int) -> bool:
    """Return whether a result has Inf only because it is too large for its dtype.

    So it is if `op` is finite for all finite inputs and the result has no NaN.
    """
    return info(op).forward == FINITE and not nan


_UNMASK = "Let each row keep at least one element, or fill with torch.finfo(dtype).min, the lowest finite number."
KEEP_INSIDE = (
    "Keep the argument of this operation inside the range where it is finite (clamp it, add an eps under a root, a log "
    "or a division, or compute it in float32)."
)
MASKED = f"A row in which everything is masked has nothing left to normalise: 0/0. {_UNMASK}"
SOFTMAX = f"Softmax gives NaN if a row of its input is all -Inf (everything in it is masked) or holds Inf. {_UNMASK}"


ATTENTION = (
    "A query all of whose keys are masked gives NaN: check attn_mask and key_padding_mask for rows that mask "
    "everything. An empty sequence has such a row."
)
MIXED = (
    "Inf minus Inf and zero times Inf are NaN: fill with torch.finfo(dtype).min, the lowest finite number, or let "
    "each row keep at least one element."
)


def earlier_step_finding(call: BackwardCall, born: Born, run: NodeRun, reached: str) -> Finding:
    """Return the finding for a parameter that a step which was not recorded made non-finite.

    It was bad when the forward of the next step began: the backward or the update of the unrecorded step made it so. In
    a closure, these are of an earlier call of the same step.

    :param run: the node of the parameter.
    :param reached: what the non-finite value reached, as the end of a sentence.
    """
    name, step = run.parameter or "a leaf", call.step if born.in_closure else max(call.step - 1, 0)
    behind = call.nodes[born.behind] if born.behind is not None else None
    site = born.likely or (behind.site if behind is not None else None)
    recorded = (
        f"{BETWEEN_CALLS}, not all of which were recorded" if born.in_closure else ", of which nothing was recorded"
    )
    title = f"{name} became {nan_or_inf(born.output)} in step {step}{recorded}"
    advice = f"The gradients of step {step} or its update made it so: {RECORD_ALL}"
    if born.likely is not None:
        title += f"; line {born.likely.line}, which ran for the first time, can have done so"
    elif behind is not None:
        title += f"; the backward of {behind.node.op or behind.name} can have done so"
    return Finding(
        kind="nonfinite-backward",
        severity="error",
        title=f"{title}; then {reached}",
        confidence="likely" if site is not None else "possible",
        module=behind.module if behind is not None and born.likely is None else None,
        node=behind.name if behind is not None and born.likely is None else None,
        tensor=name,
        parameters=(run.parameter,) if run.parameter else (),
        step=step,
        sites=sites_of(("cause", site), ("failed", call.site)),
        evidence={"nan": born.output.nan if born.output else 0, "seen": False, "inferred": INFERRED},
        advice=advice,
    )


def held_finding(call: BackwardCall, born: Born, run: NodeRun, reached: str) -> Finding:
    """Return the finding for a parameter that was not finite when the recorded forward, or a call of a closure, began.

    Which write to it made it so is not known.

    :param run: the node of the parameter.
    :param reached: what the non-finite value reached, as the end of a sentence.
    """
    name = run.parameter or "a leaf"
    if born.in_closure:
        title = f"{name} became {nan_or_inf(born.output)}{BETWEEN_CALLS}; {reached}"
        advice = WRITTEN_IN_CLOSURE
    else:
        title = f"{name} held {born.output} when the forward began; {reached}"
        advice = "What wrote to it last made it so: the optimizer's step or a gradient before this step."
    users = [r for r in call.nodes if any(edge and edge[0] == born.node for edge in r.node.edges)]
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=title,
        confidence="certain" if born.sure else "likely",
        module=run.module,
        node=run.name,
        tensor=name,
        parameters=(run.parameter,) if run.parameter else (),
        step=call.step,
        sites=sites_of(("entered", users[-1].site if users else None), ("failed", call.site)),
        evidence={"nan": born.output.nan if born.output else 0, "seen": False, "held": True},
        advice=advice,
    )


def graph_finding(call: BackwardCall, born: Born, root: Root, unrecorded_before: bool = False) -> Finding:
    """Return the finding for a non-finite loss whose origin only the graph's nodes reveal, as no forward was observed.

    :param born: the origin: a node, a leaf, or a value from outside the graph.
    :param unrecorded_before: the previous step was not recorded.
    """
    run = call.nodes[born.node]
    op = run.node.op or run.name
    reached = f"the loss became {nan_or_inf(root.bad)}"
    nan = born.output.nan if born.output else root.bad.nan if root.bad else 0
    too_large = False
    if born.how == "leaf":
        return (earlier_step_finding if unrecorded_before else held_finding)(call, born, run, reached)
    given = next((t for t in born.kept if t.bad), None)
    site, tensor, entered = run.site, f"output of {op}", None
    if born.how == "outside":
        what = f"{given.bad} in its {given.name}" if given else "a tensor that is not finite"
        called = f" ({born.variable})" if born.variable else ""
        title = f"{op} received {what}, from outside the graph{called}; {reached}"
        advice = "Check the inputs of this operation with torch.isfinite(t).all()."
        if born.likely is not None and born.likely != site:
            title += f"; its origin was not recorded, and by the source it is line {born.likely.line}"
            site, entered = born.likely, run.site
    else:
        taken = (t for t in born.kept if t.zeros and not t.name.startswith("result"))
        zeros = next((f": its {_named(t)} holds {_zeros(t)}" for t in taken), "")
        what = str(born.output) if born.output else nan_or_inf(root.bad)
        title = f"{op} produced {what} in the forward{zeros}; {reached}"
        too_large = not born.masked and _is_too_large(op, nan)
        advice = GROWN if too_large else info(op).remedy or KEEP_INSIDE
        if born.masked:
            normalises = any(word in op.lower() for word in ("softmax", "logsumexp"))
            title += "" if normalises else "; Inf that was put there on purpose went in"
            advice = MASKED if normalises else MIXED
    return Finding(
        kind="nonfinite-forward",
        severity="error",
        title=title,
        confidence="certain" if born.sure and entered is None else "likely",
        module=run.module,
        node=run.name,
        tensor=tensor,
        parameters=(run.parameter,) if run.parameter else (),
        step=call.step,
        sites=sites_of(("cause", site), ("entered", entered), ("failed", call.site)),
        evidence={
            "op": op,
            "nan": nan,
            "seen": False,
            **({"too_large": True} if too_large else {}),
            "kept": {t.name: (str(t.bad) if t.bad else _zeros(t)) for t in born.kept if t.bad or t.zeros},
            "op_is_root": root.node == born.node,
        },
        advice=advice,
    )


def region_finding(found: Finding, op: BadOp, region: Inside) -> Finding:
    """Return `found`, a finding for `op`, with the line inside the compiled region that may have produced the value."""
    entered = () if op.op.startswith(COMPILED) else sites_of(("entered", op.site))
    return dataclasses.replace(
        found,
        title=f"{region.op} in a compiled region made it, as far as can be told of what was not seen: {found.title}",
        confidence="likely",
        tensor=f"output of {region.op}",
        sites=(*sites_of(("cause", region.site)), *entered, *(s for s in found.sites if s.role != "cause")),
        evidence={**found.evidence, "in_region": region.op},
    )


def nan_or_inf(bad: object) -> str:
    """Return ``NaN`` if the recorded values have any NaN, otherwise ``Inf``."""
    return "NaN" if getattr(bad, "nan", 0) else "Inf"
