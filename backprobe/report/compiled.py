"""Compiled functions as rows of the page, longest compile time first."""

from __future__ import annotations

from collections.abc import Callable

from ..records import Site
from ..traces import Trace
from ..view import compiled as text

#: Maximum number of functions that are shown, and of graph breaks and recompilations for each.
MAX_FUNCTIONS, MAX_EVENTS_EACH = 200, 20


def compiled(trace: Trace, site_of: Callable[[Site | None], int]) -> list[dict[str, object]]:
    """Return the rows of compiled functions; lines are indices into the document's list of sites, from `site_of`."""
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
            "breaks": [{"reason": b.reason, "site": site_of(b.site)} for b in one.breaks[:MAX_EVENTS_EACH]],
            "broken": len(one.breaks),
            "again": [
                {"step": r.step, "guard": r.guard, "site": site_of(r.site)} for r in one.recompiled[-MAX_EVENTS_EACH:]
            ],
            "recompiled": len(one.recompiled),
        }
        for one in sorted(trace.compiled, key=lambda one: -one.seconds)[:MAX_FUNCTIONS]
    ]
