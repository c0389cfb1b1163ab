"""Outermost modules, as the first call of each found them: to compare two of one structure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ...float64.fingerprints import plain
from ...records import Site
from ...source.definitions import defined_at
from ...source.roots import ModuleCallRef, RootModule
from ..forward.leaves import owners_of
from .surroundings import modules


def _varies(weight: Any) -> bool:
    """Whether the values of a weight are not all the same, as far as they can be read."""
    flat = weight.detach().flatten() if plain(weight) else None
    return flat is None or bool(flat.numel() and (flat != flat[0]).any())


@dataclass
class Model:
    """An outermost module.

    :ivar first: for each path that was called from outside, the ops of the first call: from one number up to another.
    :ivar settings: by path, the class and plain settings.
    :ivar weights: by name, the number of its fingerprint, and whether its values are not all the same.
    :ivar ended: the paths of modules, as they returned.
    """

    root: RootModule
    settings: dict[str, dict[str, Any]]
    weights: dict[str, tuple[int | None, bool]]
    owners: dict[str, Any]
    first: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def structure(self) -> Any:
        """What two have in common that are to be compared."""
        return self.root.class_name, tuple((path, one["class"]) for path, one in self.settings.items())

    def assigned(self, path: str) -> Site | None:
        """The line that assigns the module at `path`."""
        owners = self.owners.get(path) or []
        return defined_at(owners[:-1], path.rpartition(".")[2]) if len(owners) > 1 else None


class Models:
    """Collects them. `value_of` is the mode's."""

    def __init__(self, value_of: Callable[[Any], int | None]) -> None:
        self._value_of = value_of
        self._begin = 0
        self.all: list[Model] = []

    def begins(self, count: int) -> None:
        """An outermost module is about to be called; the next op has the number `count`."""
        self._begin = count

    def over(self, where: ModuleCallRef, count: int) -> None:
        """An outermost call has returned."""
        if where.path is None:
            return
        model = next((one for one in self.all if one.root is where.root), None)
        if model is None:
            module = where.root.ref()
            if module is None:
                return
            model = self._met(where.root, module)
            self.all.append(model)
        model.first.setdefault(where.path, (self._begin, count))

    def _met(self, root: RootModule, module: nn.Module) -> Model:
        named = [(root.path_of(one) or "", one) for _, one in module.named_modules()]
        weights = {}
        for path, one in named:
            for key, weight in one._parameters.items():
                if weight is not None:
                    weights[f"{path}.{key}".strip(".")] = self._value_of(weight), _varies(weight)
        return Model(root, modules(named), weights, {path: owners_of(module, path) for path, _ in named})
