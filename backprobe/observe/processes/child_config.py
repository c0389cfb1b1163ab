"""What the processes that a script starts are told, as text."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schedule.settings import Settings


@dataclass(frozen=True)
class ChildConfig:
    """What a process is told of the run that it belongs to.

    :ivar folder: of the run.
    :ivar own: folders whose code is the user's though it is installed.
    :ivar limit: bytes that what is recorded may take.
    :ivar root: the folder that this package is in.
    """

    folder: Path
    settings: Settings
    own: tuple[str, ...]
    limit: int
    #: Trackers that are written to, globs on curves, and what the run is called there; none: no tracker.
    to: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    name: str = ""
    #: Kinds of alarms that end the run, and the function that is told of each, as ``MODULE:FUNCTION``.
    stop_on: tuple[str, ...] = ()
    on_alarm: str = ""
    #: The process that was told it first.
    first: int = 0
    #: When that process started, see ``signals.py``.
    first_ticks: int | None = None
    root: str = str(Path(__file__).resolve().parents[3])

    def text(self) -> str:
        settings = {**dataclasses.asdict(self.settings), "checks": sorted(self.settings.checks)}
        return json.dumps({**vars(self), "folder": str(self.folder), "settings": settings})

    @classmethod
    def of(cls, plain: dict[str, Any]) -> ChildConfig:
        given = plain["settings"]
        settings = Settings(**{**given, "checks": frozenset(given["checks"]), "histograms": tuple(given["histograms"])})
        lists = {name: tuple(plain[name]) for name in ("own", "to", "keys", "stop_on")}
        return cls(**{**plain, **lists, "folder": Path(plain["folder"]), "settings": settings})
