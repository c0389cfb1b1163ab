"""Remembers how many nodes were made between consecutive outermost backward calls."""

from __future__ import annotations

from collections.abc import Iterable

from ...torch_internals import private

#: The least number of calls whose ends are remembered.
MIN_REMEMBERED_CALLS = 1000
#: The most node counts that are remembered.
MAX_REMEMBERED_COUNTS = 10_000


class NodeCountHistory:
    """The node counter at the ends of outermost calls, and the numbers of nodes made between them."""

    def __init__(self) -> None:
        #: The node counter at the end of the last call, and at the ends of earlier ones.
        self.last_end = 0
        self.call_ends: list[int] = []
        self.known_counts: set[int] = set()

    def end_call(self) -> None:
        """Note the end of a call."""
        self.last_end = private.next_sequence_nr()
        self._append_ends((self.last_end,))

    def withdraw_end(self, last_end: int) -> None:
        """Withdraw the end of the last call, which raised: the call before it ended at node counter `last_end`."""
        self.last_end = last_end

    def add_ends(self, ends: Iterable[int]) -> None:
        """Note the ends of several calls, given as node counters."""
        self._append_ends(ends)

    def _append_ends(self, ends: Iterable[int]) -> None:
        """Append the ends of calls, and drop the oldest if they are many."""
        self.call_ends.extend(ends)
        if len(self.call_ends) > 2 * MIN_REMEMBERED_CALLS:
            del self.call_ends[:MIN_REMEMBERED_CALLS]

    def begin_call(self) -> bool:
        """Add the number of nodes made since the last call. Return whether it was known from an earlier call."""
        made = private.next_sequence_nr() - self.last_end
        known = made in self.known_counts
        if not known and len(self.known_counts) < MAX_REMEMBERED_COUNTS:
            self.known_counts.add(made)
        return known
