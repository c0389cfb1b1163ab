"""What autograd kept for backward, as rows of the page."""

from __future__ import annotations

from typing import Any

from ..traced import Trace
from .tables import Modules, Sites


def memory(trace: Trace, modules: Modules, sites: Sites) -> dict[str, Any] | None:
    """Bytes kept for backward in one step, where the run was asked for them."""
    rows = trace.facts.saved
    if not rows:
        return None
    return {
        "total": sum(r.bytes for r in rows),
        "notes": [],
        "rows": [
            {
                "module": modules.of(r.module),
                "site": sites.of(r.site),
                "op": r.op,
                "dtype": "",
                "bytes": r.bytes,
                "tensors": r.tensors,
                "names": list(r.names),
            }
            for r in rows
        ],
        "curve": None,
    }
