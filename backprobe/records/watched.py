"""Records of coverage: which steps were observed, and how processes ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Stopped:
    """The step in which recording stopped before the script ended, and why."""

    step: int
    reason: str


@record
@dataclass(frozen=True, slots=True)
class Watched:
    """The observed part of a run.

    :ivar first, last: the first and the last step; ``None`` if there was none.
    :ivar level: ``minimal`` (no nodes), ``nodes`` or ``full``.
    :ivar begin, end, every: nodes were eligible for recording in every ``every``-th step from ``begin`` up to, not
        including, ``end``; ``None`` is no end.
    :ivar budget: the overhead allowed, as a share of the script's own time: nodes are recorded in as many of those
        steps as fit; ``None``: in all of them.
    :ivar recorded: steps whose nodes were recorded, of the `steps` that ended.
    :ivar passed: steps that were too short for the budget: they have no record.
    :ivar repeated: recorded steps in which only the backward was: their graph, lines and modules are those of an
        earlier step.
    :ivar stopped: where recording ended early; ``None`` if it did not.
    :ivar only_counted: steps with a non-finite loss that were not diagnosed, since earlier ones were.
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

    :ivar ended: ``finished``; ``failed``: by an uncaught error, or with a non-zero exit code; ``killed``: it is gone,
        and did not end by itself; ``running``: it was running when the script ended, or the run was read; ``unknown``:
        it did not end by itself, and this machine cannot tell whether it is running.
    :ivar code: its exit code, if known; ``signal``: the signal that killed it, if known.
    :ivar recorded: steps whose nodes were recorded; ``loss``: that of the last step.
    :ivar restart: how often the launcher had restarted all ranks.
    :ivar part: the folder of its recording in the run's ``parts``.
    :ivar took: the cost of observing it, as stored with a run.
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
