"""What was compiled, as the page reads it: a row for each function, those that took longest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..records import Site
from ..traces import Trace
from ..view import compiled as text

#: Functions, and breaks and recompilations of one, that are shown.
MOST, EACH = 200, 20


def compiled(trace: Trace, site_of: Callable[[Site | None], int]) -> list[dict[str, Any]]:
    """Rows; lines are places in the document's list."""
    return [
        {
            "name": text.name(one),
            "site": site_of(one.site),
            "graphs": one.graphs,
            "ops": one.ops,
            "backwards": one.backwards,
            "cached": one.cached,
            "seconds": one.seconds,
            "step": one.first_step,
            "python": "torch compiles it no more" if one.limit else one.skipped,
            "breaks": [{"reason": b.reason, "site": site_of(b.site)} for b in one.breaks[:EACH]],
            "broken": len(one.breaks),
            "again": [{"step": r.step, "guard": r.guard, "site": site_of(r.site)} for r in one.recompiled[-EACH:]],
            "recompiled": len(one.recompiled),
        }
        for one in sorted(trace.compiled, key=lambda one: -one.seconds)[:MOST]
    ]
