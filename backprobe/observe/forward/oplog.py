"""Op log: the op and source line that made each node, by sequence number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from ...records import Unseen
from ...source.frames import CodeLocation
from ...source.library import Stack
from ...source.roots import ModuleCallRef

#: An entry of the op log: code object and instruction of the user's line, the function, the module call, and the
#: library frames inside that line, if any.
Entry = tuple[Any, int, Any, ModuleCallRef | None, Stack | None]

#: The entry for nodes that were made while nothing was recorded.
UNKNOWN: Entry = (None, 0, None, None, None)


def op_name(func: object) -> str:
    """Return the name of a function that made nodes."""
    return getattr(func, "__name__", None) or str(func)


def spot_of(entry: Entry) -> CodeLocation | None:
    """Return the user's line of an entry; ``None`` if it is not known."""
    return (entry[0], entry[1]) if entry[0] is not None else None


class OpLog:
    """Log of the ops that made nodes, with the node counter after each op and an entry.

    The older half is dropped when the log is full.
    """

    def __init__(self, limit: int = 262_144) -> None:
        """Start an empty log of about `limit` ops."""
        self._limit = limit
        #: Nodes with a lower number were made before the log began, or by ops that it has dropped.
        self.first = 0
        self.ends: list[int] = []
        self.entries: list[Entry] = []
        self.dropped = self.lost = 0

    def begin_at(self, seq: int) -> None:
        """Note that the log begins with the node `seq`."""
        self.first = seq

    def trim(self) -> None:
        """Drop the older half of the logged ops if the log is full. Called between steps."""
        self._repair()
        if len(self.ends) > self._limit:
            half = len(self.ends) // 2
            self.first = self.ends[half - 1]
            del self.ends[:half], self.entries[:half]
            self.dropped += half

    def _repair(self) -> None:
        """Clear the log if an exception interrupted an append (Note [Handlers of signals]).

        The two lists then differ in length, and it is unknown which items belong together.
        """
        if len(self.ends) != len(self.entries):
            self.first = self.ends[-1]
            self.lost += len(self.ends)
            self.ends.clear()
            self.entries.clear()

    def slice(self, low: int, high: int) -> tuple[list[int], list[Entry]]:
        """Return the ops that made the nodes `low` to `high`, as (ends, entries), as far as they are known."""
        self._repair()
        if high < self.first:
            return [], []
        a, b = bisect_right(self.ends, low), bisect_left(self.ends, high + 1) + 1
        return self.ends[a:b], self.entries[a:b]

    def mark_unrecorded(self, until: int) -> None:
        """Mark the nodes after the last entry and below `until` as unrecorded."""
        if self.ends and self.ends[-1] < until:
            self.ends.append(until)
            self.entries.append(UNKNOWN)

    def is_unknown(self, seq: int) -> bool:
        """Return whether node `seq` was made while nothing was recorded."""
        at = bisect_right(self.ends, seq)
        return at == len(self.ends) or self.entries[at] is UNKNOWN

    def fill_in(self, made: list[tuple[int, Entry]]) -> None:
        """Enter ops that made nodes which no logged op has made so far.
        :param made: (sequence number of the node, its entry), ascending.
        """
        if made and (not self.ends or self.ends[-1] <= made[-1][0]):
            self.ends.append(made[-1][0] + 1)
            self.entries.append(UNKNOWN)
        for seq, entry in reversed(made):
            at = bisect_right(self.ends, seq)
            end, begin = self.ends[at], self.ends[at - 1] if at else self.first
            if self.entries[at] is not UNKNOWN or seq < begin:
                continue
            ends = [*([seq] if begin < seq else []), seq + 1, *([end] if seq + 1 < end else [])]
            entries = [*([UNKNOWN] if begin < seq else []), entry, *([UNKNOWN] if seq + 1 < end else [])]
            self.ends[at : at + 1], self.entries[at : at + 1] = ends, entries

    def unseen(self) -> list[Unseen]:
        """Return how many ops were dropped from the log, by reason."""
        causes = (
            (self.dropped, "older than the op log reaches: their nodes have no line"),
            (self.lost, "noted before an interrupted op: their nodes have no line"),
        )
        return [Unseen("ops", count, why) for count, why in causes if count]
