"""What is looked for only when it is asked for: custom functions, and differences between two models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Divergence, Finding, FindingSite, FunctionChecked
from ..text import few, number
from .questions import DIFFERS, Kind, Topic, question

if TYPE_CHECKING:
    from ..traced import Trace


@question(
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
        sites=tuple(FindingSite(role, site) for role, site in pairs if site is not None),
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


@question(
    Kind("first-divergence", "warning", "the first module where two models differ", rank=DIFFERS + 10),
    topic=Topic("divergence", "two models of one structure in the script", whole_script=True),
)
def divergences(trace: Trace) -> list[Finding]:
    found = []
    for seen in trace.facts.of(Divergence):
        what = f" ({few(seen.attributes)})" if seen.attributes else ""
        at = f"at {seen.module}, a {seen.class_name}{what}: by"
        if seen.inside:
            around = seen.module or "the outermost module"
            at = f"in what {around}, a {seen.class_name}{what}, gives {seen.inside}, the same in both: by"
        found.append(
            Finding(
                kind="first-divergence",
                severity="warning",
                title=f"two models of one structure first differ {at} {number(seen.difference)} of its largest value",
                confidence="certain",
                module=seen.module,
                sites=(FindingSite("cause", seen.site),) if seen.site else (),
                evidence={
                    "direction": "forward",
                    "attributes": list(seen.attributes),
                    "matching_modules": list(seen.matching[-50:]),
                    "relative_difference": seen.difference,
                },
                advice="Everything that ran before it agrees. Compare this module's settings and weights in the two.",
            )
        )
    return found
