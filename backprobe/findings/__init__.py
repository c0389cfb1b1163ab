"""From a trace to findings: pure functions of records, one file a question. Never imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Finding, RegionDiffers, StaleRead
from .asked import divergences, wrong_functions
from .backward_error import backward_errors
from .checkpoints import checkpoint_mismatches, checkpoint_side_effects, gradient_differs
from .ddp import ready_twice
from .growth import growth
from .hooks import hook_order, hooks
from .inplace import inplace
from .memory import saved_memory
from .no_gradient import grad_mode_disabled, nonleaf_grads
from .none_grad import none_grads
from .nonfinite import nonfinites
from .ranks import desync, of_children
from .retained import retained
from .saved import cycles, silent_mutations
from .second_backward import second_backward
from .unregistered import not_in_optimizer, unregistered
from .wrong_shape import wrong_shape
from .zero_grad import zero_grads

if TYPE_CHECKING:
    from ..traced import Trace

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_ORDER = (
    "nonfinite-forward",
    "nonfinite-backward",
    "inplace",
    "silent-mutation",
    "second-backward",
    "wrong-backward-shape",
    "ddp-ready-twice",
    "rank-desync",
    "hook-inplace-conflict",
    "wrong-backward",
    "wrong-double-backward",
    "first-divergence",
    "checkpoint-mismatch",
    "checkpoint-gradient-differs",
    "backward-error",
    "grad-mode-disabled",
    "unregistered-parameter",
    "parameter-not-in-optimizer",
    "exploding-gradient",
    "zero-grad",
    "none-grad",
    "nonleaf-grad",
    "graph-retained",
    "reference-cycle",
    "saved-memory",
    "hook-never-fires",
    "legacy-hook-partial",
    "hook-order",
    "checkpoint-side-effect",
    "vanishing-gradient",
)


def explain(trace: Trace) -> list[Finding]:
    """Every finding of a run, the most important first, one for each cause."""
    found: list[Finding] = nonfinites(trace)
    differing = {index for seen in trace.facts.of(RegionDiffers) for index in seen.backwards}
    stale = {seen.stale for seen in trace.facts.of(StaleRead)}
    for call in trace.backwards:
        known = [*inplace(call), *second_backward(call), *wrong_shape(call)]
        early = call.raised is not None and call.raised.backward in stale
        found += known or (backward_errors(call) if call.index not in differing and not early else [])
    found += ready_twice(trace)
    apart = desync(trace)
    if apart:  # the error that a collective raised is its consequence
        found = [f for f in found if f.kind != "backward-error"]
    found += apart
    found += [f for f in of_children(trace) if not (apart and f.kind == "backward-error")]
    bad = any(f.severity == "error" for f in found)
    zero = zero_grads(trace) if not bad else []
    found += zero
    found += grad_mode_disabled(trace)
    found += nonleaf_grads(trace)
    found += wrong_functions(trace)
    found += divergences(trace)
    found += silent_mutations(trace)
    found += cycles(trace)
    found += saved_memory(trace)
    found += hooks(trace)
    found += hook_order(trace)
    found += retained(trace)
    asked = "checkpoints" in trace.facts.asked
    found += [f for f in checkpoint_mismatches(trace) if f.severity == "error" or not asked]
    found += gradient_differs(trace)
    found += checkpoint_side_effects(trace)
    found += unregistered(trace)
    found += not_in_optimizer(trace)
    # A run that failed early has not had the time to reach every parameter.
    failed = any(call.raised is not None and call.raised.node is not None for call in trace.backwards)
    if not failed or sum(call.raised is None for call in trace.backwards) >= 3:
        found += none_grads(trace)
    if not bad:
        found += growth(trace)
    unique: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        main = finding.sites[0].site if finding.sites else None
        unique.setdefault((finding.kind, finding.module, main, finding.parameters), finding)
    return sorted(unique.values(), key=lambda f: (_SEVERITY[f.severity], _ORDER.index(f.kind)))
