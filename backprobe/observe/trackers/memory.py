"""``--check memory``: the memory that the graphs of the first backward calls keep alive, and who holds it."""

from __future__ import annotations

from types import FrameType

from ...records import SavedBytes, SavedMemory
from ...saved_memory.holders import Holders
from ...saved_memory.reading import Reading, read
from ...torch_internals import private
from ..backward.active_backward import ActiveBackward
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of graphs that are read.
MAX_READ_GRAPHS = 3


class Memory(Tracker):
    """Tracker that reads the first graphs, and keeps the reading of the largest."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether the check was requested by ``--check memory``."""
        return "memory" in settings.checks

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._looked = 0
        self._most: tuple[Reading, int, int] | None = None

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Measure what the graph of one of the first calls has saved and who holds it; keep the largest measurement."""
        if self._looked >= MAX_READ_GRAPHS:
            return
        self._looked += 1
        names = self._context.names
        with private.disable_function_modes():
            models = [m for _, m in names.modules.models()]
            reading = read(running.graph, self._context.origins(), Holders(frame, names.frames, models))
        if self._most is None or reading.nbytes > self._most[0].nbytes:
            self._most = reading, running.step, running.index

    def records(self) -> tuple[SavedBytes | SavedMemory, ...]:
        """Return the measurement of the largest graph, in rows and as a whole."""
        if self._most is None:
            return ()
        reading, step, index = self._most
        return (*reading.rows(), reading.record(step, index, self._looked))
