"""A run, or a step of one, as one side of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..records import Tape


@dataclass(frozen=True)
class Side:
    """A run, or a step of one, in a comparison.

    :ivar name: its display name.
    """

    name: str
    folder: Path
    tape: Tape
