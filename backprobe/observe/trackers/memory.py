"""``--ask memory``: what the graphs of the first backward calls keep, and who holds it."""

from __future__ import annotations

from typing import Any

from ...kept.holders import Holders
from ...kept.reading import Reading, read
from ...records import SavedBytes, SavedMemory
from ...torchside import private
from ..backward.calls import Running
from ..forward.naming import Naming


class Memory:
    """``--ask memory``: reads the first graphs, and keeps the one that keeps most.

    :param count: graphs to look at; 0 where nobody asked.
    """

    def __init__(self, names: Naming, count: int) -> None:
        self._names, self._count = names, count
        self._looked = 0
        self._most: tuple[Reading, int, int] | None = None

    def look(self, running: Running, frame: Any, origins: Any) -> None:
        """The graph of a call that `frame` made is known. `origins()` gives where its nodes were made."""
        if self._looked >= self._count:
            return
        self._looked += 1
        with private.unseen():
            models = [m for root in self._names.modules.roots if (m := root.ref()) is not None]
            reading = read(running.graph, origins(), Holders(frame, self._names.frames, models))
        reading.kept = []  # the session's walk sees to it that a deep graph is freed with care
        if self._most is None or reading.nbytes > self._most[0].nbytes:
            self._most = reading, running.step, running.index

    @property
    def rows(self) -> tuple[SavedBytes, ...]:
        return self._most[0].rows() if self._most is not None else ()

    @property
    def record(self) -> SavedMemory | None:
        return self._most[0].record(*self._most[1:], self._looked) if self._most is not None else None
