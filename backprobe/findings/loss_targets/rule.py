"""Rules for losses through whose targets or weights a gradient flows that was not meant to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import AttachedAdvantage, CollapsedEmbeddings, Finding
from ..rules import LEARNING, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "embeddings-collapse",
        "warning",
        "a loss draws two embeddings together, trains both, and their rows become equal",
        rank=LEARNING + 26,
        questions=(Question.LEARNS_BADLY,),
        points_to="the line that compares the embeddings",
    )
)
def collapsed_embeddings(trace: Trace) -> list[Finding]:
    """Report losses that make the rows of two embeddings equal; one finding for all lines, as symmetric losses have
    two.
    """
    seen = trace.facts.of(CollapsedEmbeddings)
    if not seen:
        return []
    first = seen[0]
    return [
        Finding(
            kind="embeddings-collapse",
            severity="warning",
            title=f"both sides of {_NAMES.get(first.op, first.op)} collapse: the rows of a batch of {first.rows} "
            f"differ by {_percent(first.last)} of their size in step {first.last_step} (by {_percent(first.first)} in "
            f"step {first.first_step}), and gradient flows into both",
            confidence="likely",
            step=first.first_step,
            sites=sites_of(*(("cause", site) for site in dict.fromkeys(one.site for one in seen))),
            evidence={"op": first.op, "rows": first.rows, "first": first.first, "last": first.last},
            advice="Detach the side that is the target (z.detach()), or compute it under torch.no_grad(): it must not "
            "move towards the prediction. If both sides are meant to learn, add something that keeps the rows apart, "
            "such as negatives or a variance term.",
        )
    ]


_NAMES = {"mul": "a product", "sub": "a difference", "rsub": "a difference"}


def _percent(share: float) -> str:
    """Return a share as a percentage with two digits."""
    return f"{100 * share:.2g}%"


@rule(
    Kind(
        "advantage-not-detached",
        "warning",
        "the loss of a policy trains the critic, too: the advantage has a graph",
        rank=LEARNING + 27,
        questions=(Question.LEARNS_BADLY,),
        points_to="the product with the advantage, and the line that made it",
    )
)
def attached_advantages(trace: Trace) -> list[Finding]:
    """Report losses of a policy whose advantage has a graph, so that they train the critic too."""
    found = []
    for seen in trace.facts.of(AttachedAdvantage):
        found.append(
            Finding(
                kind="advantage-not-detached",
                severity="warning",
                title="log-probabilities are multiplied by an advantage with a graph: the loss of the policy also "
                "trains the critic, and biases its values against the term that fits them to the returns",
                confidence="likely",
                step=seen.step,
                sites=sites_of(
                    *(("cause", site) for site in dict.fromkeys((*seen.products, seen.made))),
                    *(("term", seen.regression), ("failed", seen.failed)),
                ),
                evidence={},
                advice="Multiply by advantage.detach(): only the term that fits the values to the returns should train "
                "the critic.",
            )
        )
    return found
