"""Resolves modules, parameters and source lines to display names."""

from __future__ import annotations

from dataclasses import dataclass

from ...source.frames import Frames
from .leaves import Leaves
from .modules import ModuleWatch


@dataclass(frozen=True)
class Naming:
    """The sources of display names: modules, leaves and frames."""

    modules: ModuleWatch
    leaves: Leaves
    frames: Frames

    def of(self, leaf: object) -> str:
        """Return the name of a parameter or another leaf."""
        return self.leaves.name(self.leaves.get(leaf))

    def here(self) -> str | None:
        """Return the name of the running module call."""
        stack = self.modules.stack
        return self.modules.place_of(stack[-1] if stack else None)
