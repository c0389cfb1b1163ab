"""From a trace to findings: pure functions of records, one file a question. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import BackwardCall, Finding
from .backward_error import backward_errors
from .nonfinite import nonfinite

_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def explain(backwards: Iterable[BackwardCall]) -> list[Finding]:
    """Every finding of a run, the most important first, one for each cause."""
    found: list[Finding] = []
    seen: set[tuple[object, ...]] = set()
    for call in backwards:
        for finding in (*nonfinite(call), *backward_errors(call)):
            main = finding.sites[0].site if finding.sites else None
            key = (finding.kind, finding.module, main, finding.parameters)
            if key not in seen:
                seen.add(key)
                found.append(finding)
    return sorted(found, key=lambda f: _SEVERITY[f.severity])
