"""How far what was found can be trusted: what was watched, and how processes ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Stopped:
    """The step in which watching ended before the script did, and why."""

    step: int
    reason: str


@record
@dataclass(frozen=True, slots=True)
class Watched:
    """What of a run was watched.

    :ivar first, last: the first and the last step; ``None`` where there was none.
    :ivar level: ``minimal`` (no nodes), ``nodes`` or ``full``.
    :ivar begin, end, every: nodes were looked at in every ``every``-th step from ``begin`` up to, not including,
        ``end``; ``None`` is no end.
    :ivar budget: the share of the script's own time that watching may take: nodes are recorded in as many of those
        steps as it pays for; ``None``: in all of them.
    :ivar recorded: steps whose nodes were recorded, of the `steps` that are over.
    :ivar passed: steps of these that were too short for the budget: no record is there of them.
    :ivar repeated: steps of those that were recorded of which the backward alone was: their graph is that of a step
        before, and so are its lines and modules.
    :ivar stopped: where watching ended early; ``None`` where it did not.
    :ivar only_counted: steps whose loss was not finite and which were not explained, since those before them were.
    """

    first: int | None = None
    last: int | None = None
    level: str = "nodes"
    begin: int = 0
    end: int | None = None
    every: int = 1
    stopped: Stopped | None = None
    budget: float | None = None
    recorded: int | None = None
    steps: int = 0
    passed: int = 0
    repeated: int = 0
    only_counted: int = 0


@record
@dataclass(frozen=True, slots=True)
class Process:
    """A process of a run, and how it ended.

    :ivar ended: ``finished``; ``failed``: by an error that nobody caught, or with an exit code that is not 0;
        ``killed``: it is gone, and did not come to its end; ``running``: it was there when the script ended, or the run
        was read; ``unknown``: it did not come to its end, and nobody can tell here whether it is there.
    :ivar code: its exit code, where that is known; ``signal``: what killed it, where that is known.
    :ivar recorded: steps whose nodes were recorded; ``loss``: that of the last step.
    :ivar restart: how often the launcher had started all ranks again.
    :ivar part: the folder in the run's ``parts`` that has what was recorded in it.
    :ivar took: what watching it took, as it is stored with a run.
    """

    rank: int | None
    pid: int | None
    ended: str
    error: str = ""
    code: int | None = None
    steps: int = 0
    backwards: int = 0
    signal: int | None = None
    recorded: int | None = None
    loss: float | None = None
    restart: int = 0
    part: str = ""
    took: Mapping[str, Any] = field(default_factory=dict)
