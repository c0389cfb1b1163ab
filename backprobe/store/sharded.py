"""Combines the norms of parameters that are sharded over ranks.

Note [Norms of sharded parameters]: each rank measures its own shard. Shards of one tensor, according to its placements,
make up the norm of the whole; copies of one shard count once. A partial sum has no norm, and if a rank's shard was not
measured, the whole is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from ..records import Measured, ParameterStat, Replica, Replicas, together
from ..traces import Shown, Trace, TracedStep, numbers_of


def sharded(traces: Sequence[Trace]) -> bool:
    """Return whether the ranks of `traces` hold shards of parameters."""
    return any(t.place for trace in traces for one in trace.facts.of(Replicas) for t in one.tensors)


class Whole(Shown, Sequence[TracedStep]):
    """The steps of the first rank, with the norms of whole parameters, combined from the shards of all ranks.

    :param traces: of the ranks; `traces[0]` provides the steps.
    """

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._steps = traces[0].steps
        self._held = [{t.name: t for one in trace.facts.of(Replicas) for t in one.tensors} for trace in traces]
        self._others = [{step: at for at, step in enumerate(numbers_of(trace.steps))} for trace in traces]
        self._traces = traces

    @property
    def folder(self) -> Path | None:
        """The folder of the first rank's run."""
        return getattr(self._steps, "folder", None)

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the steps, by position."""
        return numbers_of(self._steps)

    def statistics(self, after: int = -1) -> Sequence[Measured]:
        """Return the statistics of the first rank: they exclude sharded parameters."""
        found: Sequence[Measured] = getattr(self._steps, "statistics", lambda after: ())(after)
        return found

    def close(self) -> None:
        """Close the runs of all ranks."""
        for trace in self._traces:
            trace.close()

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, at: int) -> TracedStep: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[TracedStep]: ...

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        step = self._steps[at]
        ranks = [
            trace.steps[places[step.index]].parameters if step.index in places else {}
            for trace, places in zip(self._traces, self._others, strict=True)
        ]
        stats = tuple(combined(stat, ranks, self._held) for stat in step.record.parameters)
        return TracedStep(replace(step.record, parameters=stats), step.backwards)


def combined(
    stat: ParameterStat, ranks: Sequence[Mapping[str, ParameterStat]], held: Sequence[Mapping[str, Replica]]
) -> ParameterStat:
    """Return the norms of one whole parameter in one step: Note [Norms of sharded parameters].

    :param stat: the norms that the first rank measured; `ranks`: those of each rank; `held`: the tensors that each
        holds.
    """
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
    """Return the norm of a whole from those of its parts; ``None`` if one is not known."""
    known = [part for part in parts if part is not None]
    return together(known) if len(known) == len(parts) else None
