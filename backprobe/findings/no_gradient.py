"""Rules for gradient mode left off, and for ``.grad`` read from tensors that are not leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Finding, FindingSite, NoGradient
from .rules import GENERAL, LEARNING, Kind, rule, sites_of

if TYPE_CHECKING:
    from ..traces import Trace


@rule(Kind("grad-mode-disabled", "error", "gradient mode was off while the loss was computed", rank=GENERAL + 10))
def grad_mode_disabled(trace: Trace) -> list[Finding]:
    found = []
    for seen in trace.facts.of(NoGradient):
        if seen.kind not in ("grad-mode", "inference"):
            continue
        inference = seen.kind == "inference"
        pairs = (("cut", seen.site), ("failed", seen.failed))
        found.append(
            Finding(
                kind="grad-mode-disabled",
                severity="error",
                title="a tensor that was made in inference mode is used where autograd has to save it"
                if inference
                else "gradient mode was off while the loss was computed, so it has no graph",
                confidence="likely" if inference else "certain",
                module=seen.module,
                sites=sites_of(*pairs),
                advice="Use torch.no_grad() in place of torch.inference_mode() for what is used in training later, or "
                "clone() the tensor outside of it."
                if inference
                else "Turn it off with `with torch.no_grad():` around the evaluation only; set_grad_enabled(False) "
                "stays in force until it is set back, also when the function that called it has returned.",
            )
        )
    return found


@rule(Kind("nonleaf-grad", "warning", "`.grad` was read from a tensor that is not a leaf", rank=LEARNING + 50))
def nonleaf_grads(trace: Trace) -> list[Finding]:
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
