"""Rule for masks that hide the tokens of sequences and leave their padding visible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, InvertedMask
from ..rules import Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: Function with a mask -> what a mask says that is True.
_MEANINGS = {
    "multi_head_attention_forward": "nn.MultiheadAttention and the Transformer layers ignore the positions where "
    "key_padding_mask is True.",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention attends to positions where a boolean attn_mask is "
    "True. The attention_mask of transformers is 1 for tokens.",
    "masked_fill": "masked_fill writes its value where the mask is True, so these scores are hidden.",
}


@rule(
    Kind(
        "mask-inverted",
        "warning",
        "a padding mask hides the tokens of a sequence, and attention sees its padding only",
        after="logarithm-missing",
        questions=(Question.NOT_LEARNING, Question.LEARNS_BADLY),
        points_to="the line that makes the mask, and the attention",
        diverges=True,
    )
)
def inverted_masks(trace: Trace) -> list[Finding]:
    """Report padding masks that hide all tokens and leave the padding visible."""
    return [_finding(seen) for seen in trace.facts.of(InvertedMask)]


def _finding(seen: InvertedMask) -> Finding:
    """Return the finding for a line that makes an inverted mask, or that uses it if the mask comes from elsewhere."""
    meaning = _MEANINGS.get(seen.op, "")
    return Finding(
        kind="mask-inverted",
        severity="warning",
        title=f"the mask of {seen.op} is inverted: it hides all tokens and leaves the padding (id {seen.padding}) "
        f"visible, in all {seen.rows:,} sequences with padding that were compared",
        confidence="certain",
        module=seen.module,
        step=seen.step,
        sites=sites_of(("cause", seen.made), ("masked", seen.used if seen.used != seen.made else None)),
        evidence={"operation": seen.op, "padding": seen.padding, "rows": seen.rows, "steps": seen.steps},
        advice=f"Invert the mask. {meaning}".rstrip(),
    )
