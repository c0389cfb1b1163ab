"""Processes that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .findings import Finding
from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation that a process called, as torch's flight recorder has it.

    :ivar group: name of the process group, and what it is for where torch knows.
    :ivar number: its place among the collectives of the group: the same operation has the same in all ranks.
    :ivar inputs: dtype and shape of what goes in.
    :ivar began: seconds since 1970. ``timeout``: seconds after which torch gives it up.
    :ivar over: it has come to its end here.
    :ivar inside: what the script had called, where that is not the operation itself: ``backward``.
    :ivar step: in which step it was called, where that is known.
    """

    group: str
    number: int
    op: str
    inputs: str
    began: float
    over: bool
    timeout: float = 0.0
    site: Site | None = None
    inside: str = ""
    step: int | None = None


@record
@dataclass(frozen=True, slots=True)
class RankWait:
    """A long stay in a collective operation: since when (seconds since 1970), how long, and how it ended: ``returned``,
    ``raised``, or ``never`` while anybody looked.

    :ivar inside: what the script had called, where that is not the operation itself: ``backward``.
    :ivar callers: the script's calls around it, the innermost first.
    :ivar group: process group, ``number`` and ``inputs`` as in ``Collective``, where that is known.
    """

    op: str
    site: Site | None
    began: float
    seconds: float
    ended: str
    inside: str = ""
    group: str = ""
    number: int | None = None
    inputs: str = ""
    callers: tuple[Site, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class Replica:
    """A parameter or a buffer of this process, of which others may have the same.

    :ivar how: what keeps it equal: ``ddp``, ``fsdp`` (sharded over ranks that have batches of their own), ``dtensor``,
        ``buffer`` (of a model in DDP, which the forward reads and DDP does not send), or nothing: the script may.
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
    :ivar settings: of the optimizer's groups the numbers that they have, by name.
    :ivar given: sums over the bits of gradients when the last backward call that gave them was over.
    :ivar touched: lines that read or put ``.grad`` of a parameter since that call.
    :ivar unsynced: the line of ``no_sync``, where data-parallel training was told not to reduce in the last forward.
    """

    step: int
    optimizer: int
    before: tuple[int | None, ...]
    gradients: tuple[int | None, ...]
    after: tuple[int | None, ...]
    backward: Site | None = None
    settings: tuple[tuple[tuple[str, float], ...], ...] = ()
    unsynced: tuple[Site, ...] = ()
    touched: tuple[Site, ...] = ()
    given: tuple[int | None, ...] = ()


@record
@dataclass(frozen=True, slots=True)
class Replicas:
    """The state of a rank's replicas at some steps, the same on all ranks.

    :ivar written: lines of the script that wrote to one of them between an optimizer's step and the next one: the step
        in which they ran, its name, what wrote, the line.
    :ivar setters: by name of a setting of an optimizer's groups, the line of the script that writes it.
    :ivar drawn: by name of a parameter, the line that put random numbers in it last. ``put``: the line from which on it
        had another dtype for a while, where its data was put in its place.
    :ivar hooks: communication hooks, by name: the line of the function, and those in it that draw random numbers.
    :ivar changed: of parameters that an optimizer found written to since its last step, by whomever: name, the steps in
        which it did, and the lines of the script that read as if they wrote to one of that name.
    :ivar loops: of lines that touched gradients, the line of the loop that gave them what they worked on.
    :ivar seeded: lines that seed torch's random numbers, where there are distributed tensors.
    """

    rank: int
    world: int
    tensors: tuple[Replica, ...]
    states: tuple[ReplicaState, ...]
    written: tuple[tuple[int, str, str, Site | None], ...] = ()
    setters: tuple[tuple[str, Site], ...] = ()
    drawn: tuple[tuple[str, Site], ...] = ()
    put: tuple[tuple[str, Site], ...] = ()
    hooks: tuple[tuple[str, tuple[Site, ...]], ...] = ()
    seeded: tuple[Site, ...] = ()
    changed: tuple[tuple[str, tuple[int, ...], tuple[Site, ...]], ...] = ()
    loops: tuple[tuple[Site, Site], ...] = ()


@record
@dataclass(frozen=True, slots=True)
class RankSeen:
    """One process of several.

    :ivar trail: when it was seen at which line, oldest first.
    :ivar over: it came to its end; a process that was killed did not.
    :ivar findings: what was found in it.
    :ivar alive: it was still there when the script ended.
    :ivar gaps: why finding nothing in it does not mean that nothing is wrong, besides how it ended.
    :ivar signal: the signal that ended it, where it had the time to say so.
    :ivar code: its exit code, where that is known.
    :ivar recorded: steps whose nodes were recorded. ``loss``: that of the last step.
    :ivar raised: where its error was raised.
    :ivar local: its rank on its machine, ``machine``; ``world``: how many ranks there are.
    :ivar restart: how often the launcher had started all of them again.
    :ivar part: the folder of what was recorded in it, in that of the job's ``parts``.
    :ivar collectives: the last that it called, by process group and then in their order.
    :ivar busy: how much of a processor it used in the last seconds before ``said``, seconds since 1970.
    :ivar replicas: what is compared with other ranks.
    :ivar took: what watching it took, as it is stored with a run.
    :ivar norms: step and norm of all gradients as the backward gave them, before a reduction, in some steps.
    :ivar arrivals: of each process group: the number of a collective, and when that and the next ones were called
        (seconds since 1970; 0: not known), the last that torch kept.
    :ivar step: the step that it was in.
    :ivar branches: lines that leave a loop it was in, or the rest of its body, under a condition.
    :ivar between: the optimizer had stepped: it may have been in the next step already.
    :ivar ways: of lines that call collectives, the lines where it is decided whether they are come to.
    :ivar start_ticks: when the process started, in ticks of its machine's kernel: with `pid` it is no other's.
    :ivar conditions: by line of `branches` and `ways` that leaves something: the line of its condition, where that is
        another.
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
    gaps: tuple[str, ...] = ()
    signal: int | None = None
    code: int | None = None
    raised: Site | None = None
    recorded: int | None = None
    loss: float | None = None
    local: int | None = None
    world: int | None = None
    restart: int = 0
    machine: str = ""
    part: str = ""
    collectives: tuple[Collective, ...] = ()
    busy: float | None = None
    said: float = 0.0
    replicas: tuple[Replicas, ...] = ()
    took: Mapping[str, Any] = field(default_factory=dict)
    norms: tuple[tuple[int, float], ...] = ()
    arrivals: tuple[tuple[str, int, tuple[float, ...]], ...] = ()
    branches: tuple[Site, ...] = ()
    step: int | None = None
    ways: tuple[tuple[Site, tuple[Site, ...]], ...] = ()
    between: bool = False
    conditions: tuple[tuple[Site, Site], ...] = ()
    start_ticks: int | None = None
