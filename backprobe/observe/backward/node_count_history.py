"""How many nodes were made from one outermost backward call to the next."""

from __future__ import annotations

from collections.abc import Iterable

from ...torch_internals import private

#: Calls whose ends are remembered, at least.
PAST = 1000
#: Numbers of nodes that are remembered, at most.
SIZES = 10_000


class NodeCountHistory:
    """The counter of nodes at the ends of outermost calls."""

    def __init__(self) -> None:
        #: When the last one was over, and at the ends of those before.
        self.over_at = 0
        self.bounds: list[int] = []
        self.sizes: set[int] = set()

    def over(self) -> None:
        """One is over."""
        self.over_at = private.next_sequence_nr()
        self._bound((self.over_at,))

    def have_been(self, ends: Iterable[int]) -> None:
        """Some are over, which ended at these numbers."""
        self._bound(ends)

    def _bound(self, ends: Iterable[int]) -> None:
        self.bounds.extend(ends)
        if len(self.bounds) > 2 * PAST:
            del self.bounds[:PAST]

    def as_many(self) -> bool:
        """One begins: whether as many nodes were made since the last as before one that was."""
        made = private.next_sequence_nr() - self.over_at
        known = made in self.sizes
        if not known and len(self.sizes) < SIZES:
            self.sizes.add(made)
        return known
