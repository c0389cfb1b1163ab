"""Rule for ``--check divergence``: the first operation that differs from float64, or between two models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import few, number
from ...records import Divergence, Finding
from ..rules import DIFFERS, Kind, Question, Topic, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "first-divergence",
        "warning",
        "where a run departs from float64, or two models part",
        rank=DIFFERS + 10,
        questions=(Question.PRECISION,),
        points_to="the first operation that differs, and why",
    ),
    topic=Topic("divergence", "the run against itself in float64, and models of one structure", whole_script=True),
)
def divergences(trace: Trace) -> list[Finding]:
    """Report the first operation at which the run departs from float64, or at which two models of one
    structure differ.
    """
    return [_models(seen) if seen.against == "model" else _run(seen) for seen in trace.facts.of(Divergence)]


def _models(seen: Divergence) -> Finding:
    """Return the finding for the first module whose results differ between two models of one structure."""
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
    """Return the finding for the first operation of the run that differs from its computation in float64."""
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
    """Return the finding with this title and advice, and with the facts of `seen` as evidence."""
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
