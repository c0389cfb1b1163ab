"""The configuration that a run passes to its child processes, as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schedule.settings import Settings


@dataclass(frozen=True)
class ChildConfig:
    """The configuration of a child process: the run that it belongs to, and how to observe it.

    :ivar folder: of the run.
    :ivar own: folders whose code counts as the user's even if it is installed.
    :ivar limit: maximum size of the recorded data, in bytes.
    :ivar root: the folder that contains this package.
    """

    folder: Path
    settings: Settings
    own: tuple[str, ...]
    limit: int
    #: Trackers to write to (empty for none), globs on the names of their curves, and the name of the run in them.
    to: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    name: str = ""
    #: Kinds of alarms that end the run, and the function that is called with each alarm, as ``MODULE:FUNCTION``.
    stop_on: tuple[str, ...] = ()
    on_alarm: str = ""
    #: PID of the process that ``backprobe run`` started.
    first: int = 0
    #: Start time of that process; see ``signals.py``.
    first_ticks: int | None = None
    root: str = str(Path(__file__).resolve().parents[3])

    def text(self) -> str:
        """Return the configuration as JSON."""
        settings = {**dataclasses.asdict(self.settings), "checks": sorted(self.settings.checks)}
        return json.dumps({**vars(self), "folder": str(self.folder), "settings": settings})

    @classmethod
    def of(cls, plain: dict[str, Any]) -> ChildConfig:
        """Return the configuration from plain data, as JSON gives it."""
        given = plain["settings"]
        settings = Settings(**{**given, "checks": frozenset(given["checks"]), "histograms": tuple(given["histograms"])})
        lists = {name: tuple(plain[name]) for name in ("own", "to", "keys", "stop_on")}
        return cls(**{**plain, **lists, "folder": Path(plain["folder"]), "settings": settings})
