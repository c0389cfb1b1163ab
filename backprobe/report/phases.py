"""The parts of a typical step, for the page."""

from __future__ import annotations

from ..traces import Trace
from ..traces.phases import PHASES


def phases(trace: Trace) -> dict[str, object] | None:
    """Return the median seconds of each part of a step, and of how many steps; ``None`` if no step was timed."""
    typical = trace.typical_step
    if typical is None:
        return None
    return {"steps": typical.steps, "seconds": [getattr(typical, name) for name in PHASES]}
