"""What modules, parameters and lines are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...source.frames import Frames
from .leaves import Leaves
from .modules import ModuleWatch


@dataclass(frozen=True)
class Naming:
    """Those who know what things are called."""

    modules: ModuleWatch
    leaves: Leaves
    frames: Frames

    def of(self, leaf: Any) -> str:
        """The name of a parameter or another leaf."""
        return self.leaves.name(self.leaves.get(leaf))

    def here(self) -> str | None:
        """The name of the module call that is running."""
        stack = self.modules.stack
        return self.modules.place_of(stack[-1] if stack else None)
