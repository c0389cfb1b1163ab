"""What was found in a job of several ranks, each of which was recorded by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..records import Facts, Finding, RankSeen, Replicas

if TYPE_CHECKING:
    from ..traced import Trace


def job_findings(traces: Sequence[Trace]) -> list[Finding]:
    """What was found in a job, the most important first, ``rank`` set where it is one rank's.

    :param traces: of each rank one, as it was recorded.
    """
    seen: list[object] = []
    for trace in traces:
        own = rank_of(trace)
        mine = [one for one in trace.facts.of(RankSeen) if one.rank == own][:1] or [RankSeen(own, 0)]
        found = tuple(f for f in trace.findings if f.kind != "rank-desync")
        seen.append(replace(mine[0], rank=own, findings=found))
        seen += [one for one in trace.facts.of(RankSeen) if one.rank != own]
        seen += trace.facts.of(Replicas)
    kind = type(traces[0]) if traces else None
    return list(kind((), Facts(seen=tuple(seen))).findings) if kind is not None else []


def rank_of(trace: Trace) -> int | None:
    """The rank of the process that a trace is of."""
    for one in (*trace.facts.of(Replicas), *trace.facts.of(RankSeen)):
        if one.rank is not None:
            return one.rank
    return None
