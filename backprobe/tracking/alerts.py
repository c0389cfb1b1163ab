"""What a tracker is told in words: an alarm as it comes, a finding at the end."""

from __future__ import annotations

from dataclasses import dataclass

#: Severity of a finding -> level of an alert.
LEVELS = {"error": "ERROR", "warning": "WARN", "info": "INFO"}


@dataclass(frozen=True)
class Alert:
    """:ivar level: ``ERROR``, ``WARN`` or ``INFO``.
    :ivar text: what was found, and how to read the report.
    """

    kind: str
    title: str
    text: str
    level: str
    step: int | None
