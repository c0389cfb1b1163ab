"""Rules for custom functions: against finite differences, and with state that a second call overwrites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import number
from ...records import Finding, FunctionChecked
from ..rules import DIFFERS, Kind, Question, Topic, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "wrong-backward",
        "error",
        "a custom function disagrees with finite differences",
        rank=DIFFERS,
        questions=(Question.SILENTLY_WRONG,),
        points_to="the line that applies the function, and its backward",
    ),
    Kind(
        "wrong-double-backward",
        "error",
        "its second derivative does",
        after="wrong-backward",
        questions=(Question.SILENTLY_WRONG,),
        points_to="the line that applies the function, and its backward",
    ),
    topic=Topic("functions", "custom Functions against finite differences"),
)
def wrong_functions(trace: Trace) -> list[Finding]:
    """Report custom autograd functions whose backward disagrees with finite differences, as ``--check functions``
    measured.
    """
    return [_function(seen) for seen in trace.facts.of(FunctionChecked) if seen.again is None]


@rule(also=("wrong-backward",))
def overwritten_state(trace: Trace) -> list[Finding]:
    """Report custom functions that keep state outside ``ctx``, where a second call overwrites it before a backward."""
    return [_of_two_calls(seen) for seen in trace.facts.of(FunctionChecked) if seen.again is not None]


def _function(seen: FunctionChecked) -> Finding:
    """Return the finding for one wrong derivative of a custom function.

    Only information if it seems intended, as for a straight-through estimator; an error otherwise.
    """
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


def _of_two_calls(seen: FunctionChecked) -> Finding:
    """Return the finding for a function that is right alone, and wrong if it is applied again before its backward."""
    again = seen.again if seen.again != seen.applied else None
    sites = [("applied", seen.applied), ("applied", again), ("cause", seen.state), ("backward", seen.backward)]
    return Finding(
        kind="wrong-backward",
        severity="error",
        title=f"the gradient of {seen.name} is wrong if the function is applied twice before a backward: {seen.why} "
        f"({number(seen.analytic)}, and {number(seen.numeric)} without the second call)",
        confidence="certain",
        module=seen.module,
        node=f"{seen.name}Backward",
        tensor=f"input {seen.input}",
        step=seen.step,
        sites=sites_of(*sites),
        evidence={
            "function": seen.name,
            "input_index": seen.input,
            "analytic": seen.analytic,
            "alone": seen.numeric,
            "why": seen.why,
        },
        advice="Keep what backward needs on ctx: tensors with ctx.save_for_backward, other values as its attributes. "
        "An attribute of a class, of a module or of a global object is shared by all calls.",
    )
