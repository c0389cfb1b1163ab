"""Processes that belong together."""

from __future__ import annotations

from dataclasses import dataclass

from .findings import Finding
from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class RankWait:
    """A long stay in a collective operation: since when (seconds since 1970), how long, and how it ended: ``returned``,
    ``raised``, or ``never`` while anybody looked."""

    op: str
    site: Site | None
    began: float
    seconds: float
    ended: str


@record
@dataclass(frozen=True, slots=True)
class Replica:
    """A parameter or a buffer of this process, of which others may have the same.

    :ivar how: what keeps it equal: ``ddp``, ``dtensor``, ``buffer`` (of a model in DDP, which the forward reads and DDP
        does not send), or nothing: the script may.
    :ivar place: ranks of the same place have the same values. Of a sharded one that is where in the mesh its part is.
    :ivar mesh, placements: of a distributed tensor: sizes of the mesh, and on each of its dimensions ``R``, ``S(dim)``
        or ``P``.
    """

    name: str
    shape: tuple[int, ...]
    how: str = ""
    place: tuple[int, ...] = ()
    mesh: tuple[int, ...] = ()
    placements: tuple[str, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Sums over the bits of replicas around an optimizer's step, in their order: of the values before and after it, and
    of the gradients; ``None`` where there was none. ``optimizer`` counts those that stepped.

    :ivar backward: the line of the last backward call.
    """

    step: int
    optimizer: int
    before: tuple[int | None, ...]
    gradients: tuple[int | None, ...]
    after: tuple[int | None, ...]
    backward: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class Replicas:
    """The state of a rank's replicas at some steps, the same on all ranks.

    :ivar written: lines of the script that wrote to one of them between an optimizer's step and the next one: the step
        in which they ran, its name, what wrote, the line.
    """

    rank: int
    world: int
    tensors: tuple[Replica, ...]
    states: tuple[ReplicaState, ...]
    written: tuple[tuple[int, str, str, Site | None], ...] = ()


@record
@dataclass(frozen=True, slots=True)
class RankSeen:
    """One process of several.

    :ivar trail: when it was seen at which line, oldest first.
    :ivar over: it came to its end; a process that was killed did not.
    :ivar findings: what was found in it.
    :ivar alive: it was still there when the script ended.
    :ivar raised: the line that raised the error which ended it; ``step``: the step that it was in.
    :ivar replicas: of a process that left no trace of its own.
    """

    rank: int | None
    pid: int
    waits: tuple[RankWait, ...] = ()
    trail: tuple[tuple[float, Site], ...] = ()
    over: bool = True
    error: str = ""
    findings: tuple[Finding, ...] = ()
    steps: int = 0
    backwards: int = 0
    alive: bool = False
    raised: Site | None = None
    step: int | None = None
    replicas: tuple[Replicas, ...] = ()
