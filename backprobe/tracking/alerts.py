"""The alerts that backprobe sends to trackers: alarms while the script runs, findings at its end."""

from __future__ import annotations

from dataclasses import dataclass

from ..basics.text import without_controls

#: Severity of a finding -> level of an alert.
LEVELS = {"error": "ERROR", "warning": "WARN", "info": "INFO"}


@dataclass(frozen=True)
class Alert:
    """An alert for trackers. Title and text hold no control characters, since trackers print alerts to terminals.

    :ivar level: ``ERROR``, ``WARN`` or ``INFO``.
    :ivar text: the finding, and how to read the report.
    """

    kind: str
    title: str
    text: str
    level: str
    step: int | None

    def __post_init__(self) -> None:
        """Remove control characters from title and text."""
        object.__setattr__(self, "title", without_controls(self.title))
        object.__setattr__(self, "text", without_controls(self.text, lines=True))
