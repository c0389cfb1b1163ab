"""Rule for operations of the forward that autograd refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, RefusedOp
from ..rules import GENERAL, Kind, Question, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace

#: Title and advice by reason. The title continues the text of the line.
_TEXTS = {
    "split": (
        "writes in place to one of the views that a single call returned, which autograd refuses",
        "Write out of place (a = a + 1), or clone() the view before. chunk, split, unbind and a loop over a tensor "
        "return several views of one tensor: a write to one of them changes what the others belong to.",
    ),
    "leaf": (
        "writes in place to a leaf that requires a gradient, which autograd refuses",
        "If the write is an update or an initialization, put it under `with torch.no_grad():`. If it is part of the "
        "forward, write to a copy: clone() the parameter, or use an operation that is not in place.",
    ),
    "leaf view": (
        "writes in place to a part of a leaf that requires a gradient, which autograd refuses",
        "If the write is an update or an initialization, put it under `with torch.no_grad():`. If it is part of the "
        "forward, write to a copy: clone() the parameter first, or build the value with torch.where or torch.cat.",
    ),
    "no-grad view": (
        "writes in place to a view that was made under no_grad, which autograd refuses with gradient mode on",
        "Make the view where the write is, or write inside the no_grad block, too; or clone() the view.",
    ),
    "custom view": (
        "writes in place to a view that a custom function returned, which autograd refuses",
        "Write out of place, or clone() what the custom function returned.",
    ),
    "inference": (
        "writes in place to a tensor that was made in inference mode, outside of it",
        "Use torch.no_grad() in place of torch.inference_mode() for tensors that are changed later, or clone() them.",
    ),
    "out": (
        "passes a tensor that requires a gradient to an operation with out=, which autograd cannot record",
        "Assign the result in place of out=, or put the call under `with torch.no_grad():`.",
    ),
    "flag": (
        "changes requires_grad of a tensor that an operation made, which autograd refuses",
        "Use the result of detach(): it does not require a gradient. requires_grad can be turned off for leaves only.",
    ),
    "copied": (
        "copies a tensor that has a graph, which autograd refuses",
        "Assign a detached tensor to the attribute: detach() the result of the forward, or set the attribute to "
        "None before the copy. To keep the best weights, copy model.state_dict() instead of the model.",
    ),
}
#: The longest text of a line in a title.
MAX_LINE_TEXT = 80


@rule(
    Kind(
        "forward-error",
        "error",
        "autograd refused an operation of the forward, such as an in-place write to a view",
        rank=GENERAL + 5,
        questions=(Question.RAISED,),
        points_to="the line that failed, and the line that made the tensor",
    ),
    silenced_by=("hook-inplace-conflict",),
)
def forward_errors(trace: Trace) -> list[Finding]:
    """Report the first operation of the forward that autograd refused with an error, such as an in-place write to a
    view.
    """
    found = []
    for seen in trace.facts.of(RefusedOp)[:1]:
        title, advice = _TEXTS[seen.reason]
        line = seen.site.text if seen.site is not None else ""
        title += f": {seen.module + '.' if seen.module else ''}{seen.attribute}" if seen.attribute else ""
        found.append(
            Finding(
                kind="forward-error",
                severity="error",
                title=f"{line if 0 < len(line) <= MAX_LINE_TEXT else 'a line'} {title}",
                confidence="certain" if seen.observed or seen.made is None else "likely",
                module=seen.module,
                step=seen.step,
                sites=sites_of(("cause", seen.site), ("made", seen.made)),
                evidence={
                    "reason": seen.reason,
                    "error": seen.text,
                    **({"op": seen.op} if seen.op else {}),
                    **({"attribute": seen.attribute} if seen.attribute else {}),
                    **({} if seen.observed or seen.made is None else {"inferred": ["made"]}),
                },
                advice=advice,
            )
        )
    return found
