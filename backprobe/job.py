"""A job of several ranks, each of which was recorded by itself, as one trace.

Note [Norms of sharded parameters]: each rank measures what it has. Parts of one tensor, as its placements tell, make up
the norm of the whole; copies of one part count once. A summand has no norm, and where a rank's part was not measured,
the whole is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .records import Facts, Finding, ParameterStat, RankSeen, Replica, Replicas, together
from .traced import Trace, TracedStep


def job_trace(traces: Sequence[Trace]) -> Trace:
    """The steps of the first of `traces` with the norms of the whole parameters, and what was found over all ranks.

    :param traces: of each rank one, as it was recorded, by rank.
    :raises ValueError: there is none.
    """
    if not traces:
        raise ValueError("a job has one rank at least")
    seen: list[object] = []
    for trace in traces:
        own = rank_of(trace)
        mine = [one for one in trace.facts.of(RankSeen) if one.rank == own][:1] or [RankSeen(own, 0)]
        found = tuple(finding for finding in trace.findings if finding.kind != "rank-desync")
        seen.append(replace(mine[0], rank=own, findings=found, replicas=trace.facts.of(Replicas)))
        seen += [one for one in trace.facts.of(RankSeen) if one.rank != own]
    first = traces[0]
    facts = replace(first.facts, seen=tuple(seen))
    findings = Trace((), Facts(seen=tuple(seen))).findings
    return Trace(_whole(traces), facts, first.info, findings)


def job_findings(traces: Sequence[Trace]) -> list[Finding]:
    """What was found in a job, the most important first, ``rank`` set where it is one rank's.

    :param traces: as for ``job_trace``.
    :raises ValueError: there is none.
    """
    return list(job_trace(traces).findings)


def rank_of(trace: Trace) -> int | None:
    """The rank of the process that a trace is of."""
    ranks = [*(one.rank for one in trace.facts.of(Replicas)), *(one.rank for one in trace.facts.of(RankSeen))]
    return next((rank for rank in ranks if rank is not None), None)


def _whole(traces: Sequence[Trace]) -> list[TracedStep]:
    held = [{t.name: t for one in trace.facts.of(Replicas) for t in one.tensors} for trace in traces]
    by = [{step.index: step.parameters for step in trace.steps} for trace in traces]
    found = []
    for step in traces[0].steps:
        others = [steps.get(step.index, {}) for steps in by]
        stats = tuple(_combined(stat, others, held) for stat in step.record.parameters)
        found.append(TracedStep(replace(step.record, parameters=stats), step.backwards))
    return found


def _combined(
    stat: ParameterStat, ranks: Sequence[Mapping[str, ParameterStat]], held: Sequence[Mapping[str, Replica]]
) -> ParameterStat:
    """Of one parameter in one step: Note [Norms of sharded parameters]."""
    mine = held[0].get(stat.name)
    if mine is None or not mine.place:
        return stat
    parts: dict[tuple[int, ...], ParameterStat | None] = {}
    for stats, tensors in zip(ranks, held, strict=True):
        tensor = tensors.get(stat.name)
        if tensor is None:
            return ParameterStat(stat.name, None, None, None)
        parts[tensor.place] = parts.get(tensor.place) or stats.get(stat.name)
    there = [part for part in parts.values() if part is not None]
    if len(there) < len(parts):
        return ParameterStat(stat.name, None, None, None)
    return ParameterStat(
        stat.name, *(_norm([getattr(one, what) for one in there]) for what in ("weight", "grad", "update"))
    )


def _norm(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return together(known) if len(known) == len(parts) else None
