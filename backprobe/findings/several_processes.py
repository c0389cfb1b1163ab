"""Findings of several processes: attributed to their ranks, merged if equal, and ordered in time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..basics.torch_texts import COLLECTIVE, COLLECTIVE_OPS
from ..records import Finding, RankSeen

if TYPE_CHECKING:
    from ..traces import Trace

#: Kinds that spread to all other ranks a step later, when gradients are averaged.
_SPREADS = ("nonfinite-forward", "nonfinite-backward")


def of_children(trace: Trace) -> list[Finding]:
    """Return the findings of all other processes of the run, each with its rank.

    Errors in a backward are left out if they only follow from the failure of another process.
    """
    ranks = trace.facts.of(RankSeen)
    gone = any(map(failed_by_itself, ranks))
    return [
        _of(seen, finding)
        for seen in ranks
        if seen.pid != trace.info.get("pid")
        for finding in seen.findings
        if not (gone and finding.kind == "backward-error" and not failed_by_itself(seen) and seen.error)
    ]


def of_rank(trace: Trace, found: Sequence[Finding]) -> list[Finding]:
    """Return `found` with the rank of this process added where none is given, if this process has a rank."""
    own = trace.info.get("pid")
    mine = next((seen for seen in trace.facts.of(RankSeen) if seen.pid == own and seen.rank is not None), None)
    if mine is None:
        return list(found)
    return [_of(mine, one) if one.rank is None and "process" not in one.evidence else one for one in found]


def _of(seen: RankSeen, finding: Finding) -> Finding:
    """Return the finding with the rank of its process, or its process id if it has no rank; unchanged if it has one."""
    if finding.rank is not None or "process" in finding.evidence:
        return finding
    if seen.rank is None:
        return dataclasses.replace(finding, evidence={**finding.evidence, "process": seen.pid})
    return dataclasses.replace(finding, rank=seen.rank)


def merged(same: Sequence[Finding]) -> Finding:
    """Return one finding for equal findings of several processes: that of the earliest step, with all ranks in its
    evidence.
    """
    ranks = sorted({rank for one in same for rank in (*one.evidence.get("ranks", ()), one.rank) if rank is not None})
    if len(ranks) < 2:
        return same[0]
    first = min(same, key=lambda one: (_moment(one), _when(one)))
    return dataclasses.replace(first, evidence={**first.evidence, "ranks": ranks})


def _when(finding: Finding) -> tuple[float, int]:
    """Sort key of findings: the step, then the rank; those without a step last."""
    return math.inf if finding.step is None else finding.step, -1 if finding.rank is None else finding.rank


def _spreads(finding: Finding) -> bool:
    """Return whether a finding is about non-finite values, which reach the other ranks, and has a rank and a step."""
    return finding.kind in _SPREADS and finding.rank is not None and finding.step is not None


def _moment(finding: Finding) -> tuple[float, int, bool, bool]:
    """Sort key for the moment values became bad.

    A result precedes what an update or a collective brought, the forward precedes the backward, and a node's own result
    precedes other changes of a gradient, such as an average over ranks.
    """
    op = str(finding.evidence.get("op", finding.title.partition(" ")[0]))
    brought = 2 if op in COLLECTIVE_OPS else int("written_by" in finding.evidence)
    backward = finding.kind == "nonfinite-backward"
    return _when(finding)[0], brought, backward, backward and finding.node is None


def in_time(found: Sequence[Finding]) -> list[Finding]:
    """Return `found` with non-finite values in the order in which they appeared, over all ranks.

    Later ones on other ranks are consequences of the first and are listed in its evidence.
    """
    spread = sorted((one for one in found if _spreads(one)), key=_moment)
    if len(spread) < 2:
        return list(found)
    first, *later = spread
    came = [one for one in later if _moment(one) > _moment(first)]
    came = [one for one in came if {*one.evidence.get("ranks", ()), one.rank} - {first.rank}]
    if came:
        then = [f"rank {one.rank}, step {one.step}: {one.kind}" for one in came]
        spread[0] = dataclasses.replace(first, evidence={**first.evidence, "then": then})
    kept = iter([one for one in spread if not any(one is other for other in came)])
    places = map(_spreads, found)
    return [one for at, old in zip(places, found, strict=True) if (one := next(kept, None) if at else old) is not None]


def failed_by_itself(seen: RankSeen) -> bool:
    """Return whether a process failed, or was killed, and not because other processes were gone."""
    if any(word in seen.error.lower() for word in COLLECTIVE) or any(w.ended == "raised" for w in seen.waits):
        return False
    return bool(seen.error or seen.code) and not seen.signal if seen.over else not seen.alive
