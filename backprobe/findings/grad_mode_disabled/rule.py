"""Rule for gradient mode left off while the loss was computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...records import Finding, NoGradient
from ..rules import GENERAL, Kind, Question, candidates, rule, sites_of

if TYPE_CHECKING:
    from ...traces import Trace


@rule(
    Kind(
        "grad-mode-disabled",
        "error",
        "gradient mode was off while the loss was computed",
        rank=GENERAL + 10,
        questions=(Question.RAISED,),
        points_to="the line that switched gradients off",
    )
)
def grad_mode_disabled(trace: Trace) -> list[Finding]:
    """Report losses computed with gradient mode off, and tensors made in inference mode that autograd has to save.

    One finding for each pair of lines: the one that switched it off, and the one that failed.
    """
    found, known = [], set()
    for seen in trace.facts.of(NoGradient):
        if seen.kind not in ("grad-mode", "inference") or (seen.kind, seen.site, seen.failed) in known:
            continue
        known.add((seen.kind, seen.site, seen.failed))
        inference = seen.kind == "inference"
        found.append(
            Finding(
                kind="grad-mode-disabled",
                severity="error",
                title="a tensor that was made in inference mode is used where autograd has to save it"
                if inference
                else "gradient mode was off while the loss was computed, so it has no graph",
                confidence="certain" if seen.observed and not inference else "likely",
                module=seen.module,
                step=seen.step,
                sites=sites_of(("cut", seen.site), ("failed", seen.failed)),
                evidence=candidates(seen.candidates),
                advice="Use torch.no_grad() in place of torch.inference_mode() for what is used in training later, or "
                "clone() the tensor outside of it."
                if inference
                else "Turn it off with `with torch.no_grad():` around the evaluation only; set_grad_enabled(False) "
                "stays in force until it is set back, also when the function that called it has returned.",
            )
        )
    return found
