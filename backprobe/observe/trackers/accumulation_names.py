"""Records the names that the script gives to a library as the number of accumulated batches."""

from __future__ import annotations

import sys

from ...records import AccumulationNames
from ...source.calls import names_given_to
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Packages that divide the loss by the number of accumulated batches, and their arguments for it.
LIBRARIES = ("transformers", "lightning", "pytorch_lightning", "accelerate")
KEYWORDS = frozenset(("gradient_accumulation_steps", "accumulate_grad_batches"))
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
        names = names_given_to(self._frames, KEYWORDS)[:MAX_NAMES]
        return (AccumulationNames(tuple(names)),) if names else ()
