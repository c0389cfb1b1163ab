"""Rule for saved tensors that were modified without autograd noticing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, SilentWrite
from ..rules import WRONG, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "silent-mutation",
        "error",
        "a saved tensor was changed through `.data` or NumPy: gradients are wrong",
        rank=WRONG + 10,
        questions=(Question.SILENTLY_WRONG,),
        points_to="the line that wrote through `.data` or NumPy, and the line that saved",
        diverges=True,
    )
)
def silent_mutations(trace: Trace) -> list[Finding]:
    """Report saved tensors that were changed through `.data`, NumPy or running statistics without autograd noticing."""
    found = []
    for seen in trace.facts.of(SilentWrite):
        statistics = seen.op in ("batch_norm", "instance_norm")
        pairs = (("mutated", seen.site), ("saved", seen.saved), ("failed", seen.backward))
        found.append(
            Finding(
                kind="silent-mutation",
                severity="error",
                title=f"{seen.op} in train mode changed {seen.tensor}, which {seen.saver} in eval mode had saved for "
                "backward: the gradients are wrong, and autograd cannot know"
                if statistics
                else f"{seen.op} wrote through .data into {seen.tensor}, which {seen.saver} had saved for backward: "
                "the gradients are wrong, and autograd cannot know"
                if seen.op
                else f"the memory of {seen.tensor}, which {seen.saver} had saved for backward, was written from "
                "outside torch (a NumPy array shares it): the gradients are wrong, and autograd cannot know",
                confidence="certain" if seen.op else "likely",
                module=seen.module,
                node=seen.node,
                tensor=seen.tensor,
                step=seen.step,
                sites=sites_of(*pairs),
                evidence={"op": seen.op},
                advice="Copy where memory changes hands: tensor.detach().numpy().copy() before writing, or "
                "torch.tensor(array) in place of torch.from_numpy(array) where the array is filled again."
                if not seen.op
                else "Call backward on what came from eval mode before the module runs in train mode again, or detach "
                "it where it is only a target."
                if statistics
                else "Do not write through .data between the forward and its backward: under torch.no_grad() the "
                "same write is seen, and raises where it does harm. Or write to a clone.",
            )
        )
    return found
