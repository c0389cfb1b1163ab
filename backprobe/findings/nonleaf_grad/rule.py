"""Rule for ``.grad`` read from tensors that are not leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, FindingSite, NoGradient
from ..rules import LEARNING, Kind, Question, rule

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "nonleaf-grad",
        "warning",
        "`.grad` was read from a tensor that is not a leaf",
        rank=LEARNING + 50,
        questions=(Question.NOT_LEARNING,),
        points_to="the line that makes the tensor a result, and the read",
    )
)
def nonleaf_grads(trace: Trace) -> list[Finding]:
    """Report reads of `.grad` of tensors that are not leaves, where it is always None: one finding for each tensor."""
    found = []
    for seen in trace.facts.of(NoGradient):
        if seen.kind != "nonleaf":
            continue
        name = seen.tensor or "a tensor"
        found.append(
            Finding(
                kind="nonleaf-grad",
                severity="warning",
                title=f".grad was read from {name}, which an operation made: backward fills .grad of leaves only, so "
                "it is None",
                confidence="certain",
                module=seen.module,
                tensor=seen.tensor or None,
                # Both: at the line that made the tensor its gradient's path to a leaf begins, and that line is the one
                # to change.
                sites=tuple(FindingSite("cut", s) for s in dict.fromkeys((seen.made, seen.site)) if s is not None),
                evidence={"times": seen.count},
                advice=f"Call {name}.retain_grad() before backward, or ask for it: torch.autograd.grad(loss, {name}). "
                f"If {name} was meant to be a leaf, make it in its last form first (on its device, of its dtype and "
                "shape), and set requires_grad after that.",
            )
        )
    return found
