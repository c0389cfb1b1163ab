"""Which of several ranks made the first value that is not finite.

Note [The first bad rank]: what one rank makes NaN the others get from the next reduction, so the first is where it
began: by step, and within a step where it was made rather than brought by a collective. What the others found about NaN
then is a consequence, and is told in the evidence of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..records import Finding
from ..torch_texts import COLLECTIVE_OPS

_BAD = frozenset({"nonfinite-forward", "nonfinite-backward"})


def first_bad(found: Sequence[Finding]) -> list[Finding]:
    """`found` of several ranks without what was brought by a reduction: Note [The first bad rank]."""
    bad = [f for f in found if f.kind in _BAD]
    if len({f.rank for f in bad}) < 2:
        return list(found)
    begin = min(bad, key=lambda f: (f.step is None, f.step or 0, brought(f)))
    alike = [f for f in bad if (f.step, brought(f)) == (begin.step, brought(begin))]
    spread = {str(f.rank): f.step for f in reversed(bad) if f.rank not in {one.rank for one in alike}}
    told = [replace(f, evidence={**f.evidence, "spread": spread}) if f is begin and spread else f for f in alike]
    return [*told, *(f for f in found if f.kind not in _BAD)]


def brought(finding: Finding) -> int:
    """How much speaks for it that a collective brought the bad value: 0 it was made here, 1 an update or a write spread
    it, 2 a collective gave it."""
    op = str(finding.evidence.get("op", finding.title.partition(" ")[0]))
    if op in COLLECTIVE_OPS:
        return 2
    return 1 if "written_by" in finding.evidence else 0
