"""Rules that run only on request: custom functions, compiled regions, and divergence of two models or from float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..records import CompiledWrong, Divergence, Finding, FunctionChecked
from ..text import few, number
from .rules import DIFFERS, Kind, Topic, rule, sites_of

if TYPE_CHECKING:
    from ..traces import Trace


@rule(
    Kind("wrong-backward", "error", "a custom function disagrees with finite differences", rank=DIFFERS),
    Kind("wrong-double-backward", "error", "its second derivative does", after="wrong-backward"),
    topic=Topic("functions", "custom Functions against finite differences"),
)
def wrong_functions(trace: Trace) -> list[Finding]:
    return [_function(seen) for seen in trace.facts.of(FunctionChecked)]


def _function(seen: FunctionChecked) -> Finding:
    meant = seen.why.startswith(("the forward is flat", "it is the true gradient with"))
    why = f": {seen.why}" if seen.why else ""
    told = "is wrong" if "contiguous" in why else "disagrees with finite differences"
    pairs = (("applied", seen.applied), ("backward", seen.backward))
    return Finding(
        kind="wrong-double-backward" if seen.what == "second derivative" else "wrong-backward",
        severity="info" if meant else "error",
        title=f"the {seen.what} of {seen.name} {told}{why} ({number(seen.analytic)} against {number(seen.numeric)})",
        confidence="likely" if meant else "certain",
        module=seen.module,
        node=f"{seen.name}Backward",
        tensor=f"input {seen.input}",
        sites=sites_of(*pairs),
        evidence={
            "function": seen.name,
            "input_index": seen.input,
            "analytic": seen.analytic,
            "numeric": seen.numeric,
            "why": seen.why,
        },
        advice="Check the formula for this input; every gradient that backward returns has grad_output as a factor. "
        "torch.autograd.gradcheck in double precision tells when it is right.",
    )


@rule(
    Kind("wrong-compiled", "error", "a compiled region gives something else than its operations", rank=DIFFERS + 5),
    topic=Topic("compiled", "compiled regions against their operations, one by one and in float64"),
)
def wrong_regions(trace: Trace) -> list[Finding]:
    return [_region(seen) for seen in trace.facts.of(CompiledWrong)]


def _region(seen: CompiledWrong) -> Finding:
    what = "the gradients" if seen.what == "backward" else "the result"
    where = f" from {seen.op} on" if seen.op is not None else ""
    far = "not finite where that of its operations is" if seen.off == math.inf else f"off by {number(seen.off)}"
    verb = "are" if seen.what == "backward" else "is"
    title = f"{what} of the compiled {seen.function or 'region'}{where} {verb} {far}"
    if seen.off != math.inf:
        title += f", where rounding takes its operations {number(seen.usual)}"
    pairs = (("cause", seen.site), ("compiled", seen.compiled))
    return Finding(
        kind="wrong-compiled",
        severity="error",
        title=title,
        confidence="certain",
        module=seen.module,
        step=seen.step,
        sites=sites_of(*pairs),
        evidence={
            "op": seen.op,
            "what": seen.what,
            "off": seen.off,
            "usual": seen.usual,
            "alone": seen.alone,
            "script": seen.script,
        },
        advice="The compiler is wrong here, or takes a liberty that is too much for these values. Leave this operation "
        "out of what is compiled (torch.compiler.disable on a function around it), or try another backend or version "
        "of torch"
        + ("; it is wrong alone." if seen.alone else ".")
        + (" A script that shows it is in findings.json (evidence.script)." if seen.script else "")
        if seen.op is not None
        else "No part of it is wrong by itself: it is wrong where operations are fused. Compile smaller parts, or "
        "leave this function out (torch.compiler.disable).",
    )


@rule(
    Kind("first-divergence", "warning", "where a run departs from float64, or two models part", rank=DIFFERS + 10),
    topic=Topic("divergence", "the run against itself in float64, and models of one structure", whole_script=True),
)
def divergences(trace: Trace) -> list[Finding]:
    return [_models(seen) if seen.against == "model" else _run(seen) for seen in trace.facts.of(Divergence)]


def _models(seen: Divergence) -> Finding:
    settings = f" ({few(seen.attributes)})" if seen.attributes else ""
    at = f"at {seen.module or 'the outermost module'}, a {seen.class_name}{settings}"
    off = f": {seen.what}" if seen.what else f": by {number(seen.difference or 0.0)}"
    if seen.rounding:
        return _divergence(
            seen,
            f"two models of one structure drift apart {at}{off}",
            "Both calculate the same, and one of them with too few digits: add up in float32 what has many terms, or "
            "terms of very different size, and go back to the narrow dtype with the result.",
        )
    return _divergence(
        seen,
        f"two models of one structure first differ {at}{off}",
        "Everything that ran before it agrees. Compare this module's settings and weights in the two.",
    )


def _run(seen: Divergence) -> Finding:
    inside = f" in {seen.module}" if seen.module else ""
    off = f", off by {number(seen.difference)}" if seen.difference is not None else ""
    advice = (
        "Check the formula for each input; --check functions holds it against finite differences."
        if seen.node and seen.node == seen.op
        else "Calculate this line in float32 (or float64), or write it so that nothing cancels or overflows: "
        "subtract the largest before exp, the mean before squares, use log1p, expm1, logsumexp."
    )
    return _divergence(seen, f"departs from float64 at {seen.op}{inside}: {seen.what}{off}", advice)


def _divergence(seen: Divergence, title: str, advice: str) -> Finding:
    pairs = (("cause", seen.site), ("op", seen.other))
    return Finding(
        kind="first-divergence",
        severity="warning",
        title=title,
        confidence="certain",
        module=seen.module,
        node=seen.node,
        step=seen.step,
        sites=sites_of(*pairs),
        evidence={
            "against": seen.against,
            "direction": seen.phase,
            "op": seen.op,
            "attributes": list(seen.attributes),
            "matching_modules": list(seen.matching[-50:]),
            "relative_difference": seen.difference,
        },
        advice=advice,
    )
