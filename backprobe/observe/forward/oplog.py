"""Which op, called where, made each node: a log by sequence number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from ...records import Unseen
from ...source.frames import Spot
from ...source.library import Stack
from ...source.roots import Where

#: An entry of the op log: code object and instruction of the place, the function, the module call, and the frames of
#: libraries inside that place, where there are any.
Entry = tuple[Any, int, Any, Where | None, Stack | None]


def op_name(func: Any) -> str:
    return getattr(func, "__name__", None) or str(func)


def spot_of(entry: Entry) -> Spot | None:
    return (entry[0], entry[1]) if entry[0] is not None else None


class OpLog:
    """The flight recorder: for each op that made nodes, the counter after it and an entry. A ring of two halves."""

    def __init__(self, limit: int = 262_144) -> None:
        self._limit = limit
        self.ends: list[int] = []
        self.entries: list[Entry] = []
        self.dropped = 0
        self.added = 0

    def trim(self) -> None:
        """Called between steps: the older half goes when the log is full."""
        if len(self.ends) > self._limit:
            half = len(self.ends) // 2
            self.added += half
            del self.ends[:half], self.entries[:half]
            self.dropped += half

    def slice(self, low: int, high: int) -> tuple[list[int], list[Entry]]:
        """The ops that made the nodes `low` to `high`, as ends and entries."""
        a, b = bisect_right(self.ends, low), bisect_left(self.ends, high + 1) + 1
        if a == 0 and self.dropped and self.ends and self.ends[0] > low:
            a = min(1, len(self.ends))  # the first entry may stand for dropped ones too
        return self.ends[a:b], self.entries[a:b]

    def unseen(self) -> list[Unseen]:
        if not self.dropped:
            return []
        return [Unseen("ops", self.dropped, "older than the op log reaches: their nodes have no line")]
