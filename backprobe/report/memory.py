"""Memory that autograd saved for backward, as rows of the page."""

from __future__ import annotations

from ..basics.text import few, size
from ..records import SavedBytes, SavedMemory
from ..traces import Trace
from .columns import column
from .tables import Modules, Sites

#: Maximum number of modules, or groups of equal ones, for which the page estimates the saving of a checkpoint.
MAX_MODULES = 5
_HOLDER_PHRASES = {
    "parameter": "parameters hold anyway",
    "buffer": "buffers hold anyway",
    "variable": "variables of the script hold too",
    "graph": "another graph holds too",
    "other": "something else holds too",
}


def memory(trace: Trace, modules: Modules, sites: Sites) -> dict[str, object] | None:
    """Return the bytes saved for backward in one step that nothing else holds, as rows for the page.

    ``None`` if the run did not measure them.
    """
    kept = [r for r in trace.facts.of(SavedBytes) if not r.holder]
    seen = trace.facts.one(SavedMemory)
    if not kept:
        return None
    held: dict[str, int] = {}
    for row in trace.facts.of(SavedBytes):
        if row.holder:
            held[row.holder] = held.get(row.holder, 0) + row.bytes
    notes = [f"Not in it: {size(n)} that {_HOLDER_PHRASES[holder]}." for holder, n in held.items()]
    return {
        "step": -1 if seen is None else seen.step,
        "total": sum(r.bytes for r in kept),
        "notes": notes + (_notes(seen) if seen is not None else []),
        "rows": [
            {
                "module": modules.of(r.module),
                "site": sites.of(r.site),
                "op": r.op,
                "dtype": r.dtype,
                "bytes": r.bytes,
                "tensors": r.tensors,
                "names": list(r.names),
            }
            for r in kept
        ],
        "curve": column("d", _curve(seen)) if seen is not None and seen.curve else None,
    }


def _notes(seen: SavedMemory) -> list[str]:
    """Return sentences about offloaded and unmeasured tensors, and about the bytes that checkpoints would save."""
    notes = [f"{p.policy} keeps {size(p.nbytes)} of {p.tensors} tensors elsewhere." for p in seen.placed]
    notes += [f"Not counted: {u.count} {u.what} ({u.why})." for u in seen.unknown]
    alike: dict[tuple[int, int], list[str]] = {}
    for module in seen.modules:
        if module.saves > 0:
            alike.setdefault((module.inside, module.inputs), []).append(module.path or module.class_name)
    for (inside, inputs), names in list(alike.items())[:MAX_MODULES]:
        each = ", each," if len(names) > 1 else ""
        notes.append(
            f"A checkpoint of {few(names)}{each} would keep {size(inside - inputs)} less: "
            f"{size(inside)} are kept inside, {size(inputs)} of inputs would have to be. Worked out, not tried."
        )
    return notes


def _curve(seen: SavedMemory) -> list[float]:
    """Return the bytes still held before the first node, and after each node."""
    kept = {moment.order: float(moment.nbytes) for moment in seen.curve}  # before the first node: -1
    values, now = [], 0.0
    for order in range(-1, max(kept) + 1):
        now = kept.get(order, now)
        values.append(now)
    return values
