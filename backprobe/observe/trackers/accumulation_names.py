"""Records the names that the script gives to a library as the number of accumulated batches."""

from __future__ import annotations

import sys

from ...records import AccumulationNames
from ...source.calls import names_given_to
from ..backward.accumulating_libraries import COUNT_KEYWORDS
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Packages that divide the loss by the number of accumulated batches.
LIBRARIES = ("transformers", "lightning", "pytorch_lightning", "accelerate")
#: Maximum number of names.
MAX_NAMES = 16


class AccumulationNamesTracker(Tracker):
    """Reads the names from the source when the run ends."""

    def __init__(self, context: TrackerContext) -> None:
        self._frames = context.frames

    def records(self) -> tuple[AccumulationNames, ...]:
        """Return the names that the source gives as the number of accumulated batches, if such a library is
        imported.
        """
        if not any(name in sys.modules for name in LIBRARIES):
            return ()
        names = names_given_to(self._frames, COUNT_KEYWORDS)[:MAX_NAMES]
        return (AccumulationNames(tuple(names)),) if names else ()
