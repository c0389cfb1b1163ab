"""Resolves modules, parameters and source lines to display names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...source.frames import Frames
from .leaves import Leaves
from .modules import ModuleWatch

#: Attributes of a module in which torch keeps parameters, buffers and modules.
MODULE_STATE = frozenset({"_parameters", "_buffers", "_modules"})


@dataclass(frozen=True)
class Naming:
    """The sources of display names: modules, leaves and frames."""

    modules: ModuleWatch
    leaves: Leaves
    frames: Frames

    def of(self, leaf: object) -> str:
        """Return the name of a parameter or another leaf."""
        return self.leaves.name(self.leaves.get(leaf))

    def attribute_with(self, holds: Callable[[object], bool]) -> tuple[str, str]:
        """Return the name of the first module with an attribute for which `holds` is true, and of that attribute.

        Parameters, buffers and submodules do not count. Both are empty if there is none.
        """
        for root, model in self.modules.models():
            for path, module in model.named_modules():
                for name, value in vars(module).items():
                    if name not in MODULE_STATE and holds(value):
                        return self.modules.full_name(root, path), name
        return "", ""

    def here(self) -> str | None:
        """Return the name of the running module call."""
        stack = self.modules.stack
        return self.modules.place_of(stack[-1] if stack else None)
