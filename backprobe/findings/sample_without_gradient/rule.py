"""Rule for samples that a loss uses, and that carry no gradient to their distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...basics.text import listed
from ...records import Finding, SampleWithoutGradient
from ..rules import GRADIENTS_INVALID, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: The most parameters in a title: others depend on them, too.
MAX_SHOWN = 3
_ADVICE = {
    "sample": "Draw with rsample(), which writes the sample as a function of the parameters: for a normal distribution "
    "mean + deviation * noise. If the sample is meant to have no graph, train the distribution by its log_prob().",
    "torch.normal": "Draw with mean + std * torch.randn_like(std), or with torch.distributions.Normal(mean, "
    "std).rsample(): the derivative of torch.normal is zero.",
}


@rule(
    Kind(
        "sample-without-gradient",
        "warning",
        "a sample that the loss uses carries no gradient to its distribution, which only a divergence trains",
        after="loss-term-without-graph",
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that draws the sample",
    ),
    silences=("posterior-collapsed",),
    silenced_by=(GRADIENTS_INVALID, "grad-mode-disabled"),
)
def samples_without_gradient(trace: Trace) -> list[Finding]:
    """Report samples that the loss uses and through which no gradient reaches the parameters of their distribution."""
    return [_finding(seen) for seen in trace.facts.of(SampleWithoutGradient)]


def _finding(seen: SampleWithoutGradient) -> Finding:
    """Return the finding for one line that draws samples without a graph."""
    names = seen.parameters
    such_as = "parameters such as " if len(names) > MAX_SHOWN else ""
    trained = f"{such_as}{listed(names[:MAX_SHOWN])}" if names else "its distribution"
    is_sample = seen.how == "sample"
    why = f"{seen.distribution}.sample() draws without a graph" if is_sample else "torch.normal has no derivative"
    return Finding(
        kind="sample-without-gradient",
        severity="warning",
        title=f"{why}: the loss uses the sample, and trains {trained} by a divergence or an entropy only",
        confidence="likely",
        step=seen.step,
        parameters=names,
        sites=sites_of(("cut", seen.site), ("failed", seen.failed)),
        evidence={"op": seen.how, "distribution": seen.distribution},
        advice=_ADVICE[seen.how],
    )
