"""Checkpointed regions whose recomputation changes state a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Finding, FindingSite
from .words import few

if TYPE_CHECKING:
    from ..traced import Trace


def checkpoint_side_effects(trace: Trace) -> list[Finding]:
    return [
        Finding(
            kind="checkpoint-side-effect",
            severity="warning",
            title=f"the recomputation of a checkpoint changed {few(seen.buffers)} a second time",
            confidence="certain",
            module=seen.modules[0],
            sites=(FindingSite("region", seen.region),) if seen.region else (),
            evidence={"buffers": list(seen.buffers), "modules": list(seen.modules)},
            advice="Batch normalisation inside a checkpoint updates its running statistics in the forward and again in "
            "the recomputation: leave it out of the region, halve its momentum, or freeze it while recomputing."
            if any(b.endswith("running_mean") for b in seen.buffers)
            else "Leave what changes its own state out of the checkpointed region, or let it change in one of the two "
            "runs only.",
        )
        for seen in trace.facts.recomputed
    ]
