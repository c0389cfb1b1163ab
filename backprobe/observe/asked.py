"""What is looked for only when asked (``--ask``), and how it is started and asked for its results."""

from __future__ import annotations

from typing import Any

from ..records import Divergence, FunctionChecked, RegionGradient, Unseen
from .forward.naming import Naming
from .forward.regions import Regions
from .schedule.detail import Settings
from .trackers.checkpointed import Checkpointed
from .trackers.divergence import Diverging
from .trackers.functions import Functions
from .trackers.tensors import Tensors


class Asked:
    """Those who look, by topic; ``None`` where nobody asked."""

    def __init__(self, settings: Settings, names: Naming, regions: Regions) -> None:
        modules, frames, topics = names.modules, names.frames, settings.ask
        self._functions = Functions(modules, frames) if "functions" in topics else None
        self._diverging = Diverging(modules) if "divergence" in topics else None
        self._checkpoints = Checkpointed(modules, frames, names.of) if "checkpoints" in topics else None
        self.tensors = Tensors(settings.tensors, names) if settings.tensors else None
        modules.diverging, regions.samples = self._diverging, self._checkpoints
        modules.looking = self.tensors
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

    def begin_step(self, step: int) -> None:
        if self.tensors is not None:
            self.tensors.begin(step)

    def stepping(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        if self.tensors is not None:
            self.tensors.stepping(optimizer)

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        return self._diverging.records() if self._diverging is not None else ()

    def unseen(self) -> list[Unseen]:
        found = self._checkpoints.unseen() if self._checkpoints is not None else []
        found += self.tensors.unseen() if self.tensors is not None else []
        return found + (self._functions.unseen() if self._functions is not None else [])
