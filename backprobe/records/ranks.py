"""Records of the processes of a distributed run."""

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
    """A collective operation that a process called, from torch's flight recorder.

    :ivar group: name of the process group, and its purpose if torch knows it.
    :ivar number: its position among the collectives of the group: the same operation has the same number in all ranks.
    :ivar inputs: dtype and shape of the inputs.
    :ivar began: seconds since 1970. ``timeout``: seconds after which torch gives up.
    :ivar over: it has ended in this process.
    :ivar inside: the call of the script, if that is not the operation itself: ``backward``.
    :ivar step: the step in which it was called, if known.
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
    """A long wait in a collective operation: its start (seconds since 1970), duration in seconds, and how it ended.

    ``ended`` is ``returned``, ``raised``, or ``never`` (during the run).

    :ivar inside: the call of the script, if that is not the operation itself: ``backward``.
    :ivar callers: the script's enclosing calls, the innermost first.
    :ivar group: process group, ``number`` and ``inputs`` as in ``Collective``, if known.
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
    """A parameter or a buffer of this process that may have copies on other ranks.

    :ivar how: what keeps it equal: ``ddp``, ``fsdp`` (sharded over ranks with different batches), ``dtensor``,
        ``buffer`` (of a model in DDP; the forward reads it and DDP does not send it), or "": the script may.
    :ivar place: ranks of the same place hold the same values. For a sharded one it is the position of its shard in the
        mesh.
    :ivar mesh, placements: for a distributed tensor: sizes of the mesh, and on each of its dimensions ``R``, ``S(dim)``
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
    """Checksums of replicas around an optimizer's step, in the order of the replicas.

    They are sums over the bits of the values before and after the step, and of the gradients; ``None`` if there was
    none. ``optimizer`` numbers the optimizers that stepped.

    :ivar backward: the line of the last backward call.
    :ivar settings: the numeric settings of the optimizer's groups, by name.
    :ivar given: checksums of gradients at the end of the last backward call that gave them.
    :ivar touched: lines that read or set ``.grad`` of a parameter since that call.
    :ivar unsynced: the line of ``no_sync``, if it turned off the reduction of gradients in the last forward.
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
    """The state of a rank's replicas at some steps, which are the same on all ranks.

    :ivar written: lines of the script that wrote to a replica between an optimizer's step and the next one: the step in
        which they ran, the replica's name, the operation, the line.
    :ivar setters: by name of a setting of an optimizer's groups, the line of the script that writes it.
    :ivar drawn: by name of a parameter, the line that last filled it with random numbers. ``put``: the line from which
        on it had another dtype for a while, if its data was replaced.
    :ivar hooks: communication hooks, by name: the line of the function, and its lines that draw random numbers.
    :ivar changed: parameters that an optimizer found modified since its last step, by any code: name, the steps in
        which it did, and the lines of the script that, by their source, may write to a parameter of that name.
    :ivar loops: for lines that touched gradients, the line of the loop that provides the parameters.
    :ivar seeded: lines that seed torch's generator, if there are distributed tensors.
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
    """A process of a multi-process run, as last observed.

    :ivar trail: when it was observed at which line, oldest first.
    :ivar over: it ended by itself; a killed process did not.
    :ivar findings: findings of this process.
    :ivar alive: it was still running when the script ended.
    :ivar gaps: why "no findings" is inconclusive for it, apart from how it ended.
    :ivar signal: the signal that ended it, if it had the time to report it.
    :ivar code: its exit code, if known.
    :ivar recorded: steps whose nodes were recorded. ``loss``: that of the last step.
    :ivar raised: the line that raised its error.
    :ivar local: its rank on its machine, ``machine``; ``world``: the number of ranks.
    :ivar restart: how often the launcher had restarted all ranks.
    :ivar part: the folder of its recording, in the job's ``parts``.
    :ivar collectives: the last that it called, by process group and then in their order.
    :ivar busy: processor usage in the last seconds before ``said``, seconds since 1970.
    :ivar replicas: values to compare with other ranks.
    :ivar took: the cost of observing it, as stored with a run.
    :ivar norms: step and norm of all gradients as the backward gave them, before a reduction, in some steps.
    :ivar arrivals: for each process group: the number of a collective, and when that and the next ones were called
        (seconds since 1970; 0: unknown), the last that torch kept.
    :ivar step: the step that it was in.
    :ivar branches: lines that leave a loop it was in, or the rest of its body, under a condition.
    :ivar between: the optimizer had stepped: it may have been in the next step already.
    :ivar ways: for lines that call collectives, the conditions that decide whether they execute.
    :ivar start_ticks: when the process started, in ticks of its machine's kernel: unique together with `pid`.
    :ivar conditions: by line of `branches` and `ways` that leaves something: the line of its condition, if different.
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
