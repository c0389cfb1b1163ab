"""What is looked for only when asked (``--ask``), and how it is started and asked for its results."""

from __future__ import annotations

from ..records import Divergence, FunctionChecked, RegionGradient, Unseen
from .checkpointed import Checkpointed
from .divergence import Diverging
from .functions import Functions
from .naming import Naming
from .regions import Regions


class Asked:
    """Those who look, by topic; ``None`` where nobody asked."""

    def __init__(self, topics: frozenset[str], names: Naming, regions: Regions) -> None:
        modules, frames = names.modules, names.frames
        self._functions = Functions(modules, frames) if "functions" in topics else None
        self._diverging = Diverging(modules) if "divergence" in topics else None
        self._checkpoints = Checkpointed(modules, frames, names.of) if "checkpoints" in topics else None
        modules.diverging, regions.samples = self._diverging, self._checkpoints
        self.functions: tuple[FunctionChecked, ...] = ()
        self.gradients: tuple[RegionGradient, ...] = ()

    def start(self) -> None:
        if self._functions is not None:
            self._functions.start()

    def pause(self) -> None:
        if self._functions is not None:
            self._functions.stop()

    def check(self, second_order: bool) -> None:
        """At the end: run what was sampled again."""
        if self._functions is not None:
            self.functions = self._functions.check(second_order)
        if self._checkpoints is not None:
            self.gradients = self._checkpoints.check()

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        return self._diverging.records() if self._diverging is not None else ()

    def unseen(self) -> list[Unseen]:
        found = self._checkpoints.unseen() if self._checkpoints is not None else []
        return found + (self._functions.unseen() if self._functions is not None else [])
