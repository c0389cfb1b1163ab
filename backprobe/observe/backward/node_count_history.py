"""Remembers how many nodes were made between consecutive outermost backward calls."""

from __future__ import annotations

from collections.abc import Iterable

from ...torch_internals import private

#: The least number of calls whose ends are remembered.
MIN_REMEMBERED_CALLS = 1000
#: The most node counts that are remembered.
MAX_REMEMBERED_COUNTS = 10_000


class NodeCountHistory:
    """The node counter at the ends of outermost calls."""

    def __init__(self) -> None:
        #: The node counter at the end of the last call, and at the ends of earlier ones.
        self.over_at = 0
        self.bounds: list[int] = []
        self.sizes: set[int] = set()

    def over(self) -> None:
        """Note the end of a call."""
        self.over_at = private.next_sequence_nr()
        self._bound((self.over_at,))

    def reopen(self, over_at: int) -> None:
        """Withdraw the end of a call that raised: the last one that ended did so at `over_at`."""
        self.over_at = over_at

    def have_been(self, ends: Iterable[int]) -> None:
        """Note the ends of several calls, given as node counters."""
        self._bound(ends)

    def _bound(self, ends: Iterable[int]) -> None:
        self.bounds.extend(ends)
        if len(self.bounds) > 2 * MIN_REMEMBERED_CALLS:
            del self.bounds[:MIN_REMEMBERED_CALLS]

    def as_many(self) -> bool:
        """Note the beginning of a call.

        Returns whether as many nodes were made since the last call as before an earlier one.
        """
        made = private.next_sequence_nr() - self.over_at
        known = made in self.sizes
        if not known and len(self.sizes) < MAX_REMEMBERED_COUNTS:
            self.sizes.add(made)
        return known
