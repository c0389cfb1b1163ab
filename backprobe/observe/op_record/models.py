"""Outermost modules, as their first call found them, for comparing two of equal structure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from ...float64.fingerprints import plain
from ...records import Site
from ...source.definitions import defined_at
from ...source.roots import ModuleCallRef, RootModule
from ..forward.leaves import owners_of
from .surroundings import module_settings

if TYPE_CHECKING:
    import torch


def _has_different_values(weight: torch.Tensor) -> bool:
    """Return whether the values of a weight differ from each other; ``True`` if they cannot be read."""
    flat = weight.detach().flatten() if plain(weight) else None
    return flat is None or bool(flat.numel() and (flat != flat[0]).any())


@dataclass
class Model:
    """An outermost module.

    :ivar first_calls: path that was called from outside -> range of the ops of its first call.
    :ivar settings: path -> class and plain settings.
    :ivar weights: name -> index of its fingerprint, and whether its values differ from each other.
    :ivar owners: path -> the modules along it.
    """

    root: RootModule
    settings: dict[str, dict[str, object]]
    weights: dict[str, tuple[int | None, bool]]
    owners: dict[str, Any]
    first_calls: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def structure(self) -> object:
        """A key that is equal for models with the same classes at the same paths: such models are compared."""
        return self.root.class_name, tuple((path, one["class"]) for path, one in self.settings.items())

    def assignment_site(self, path: str) -> Site | None:
        """Return the source line that assigns the module at `path`."""
        owners = self.owners.get(path) or []
        return defined_at(owners[:-1], path.rpartition(".")[2]) if len(owners) > 1 else None


class Models:
    """Collects outermost modules. `fingerprint_of` is a method of the dispatch mode."""

    def __init__(self, fingerprint_of: Callable[[torch.Tensor], int | None]) -> None:
        self._fingerprint_of = fingerprint_of
        self._first_op = 0
        self.all: list[Model] = []

    def call_begins(self, next_op: int) -> None:
        """Note that an outermost module is about to be called; the next op has the index `next_op`."""
        self._first_op = next_op

    def call_returned(self, where: ModuleCallRef, next_op: int) -> None:
        """Note that a module called from outside has returned, before op `next_op`; keep the range of ops of its first
        call.
        """
        if where.path is None:
            return
        model = next((one for one in self.all if one.root is where.root), None)
        if model is None:
            module = where.root.ref()
            if module is None:
                return
            model = self._model_of(where.root, module)
            self.all.append(model)
        model.first_calls.setdefault(where.path, (self._first_op, next_op))

    def _model_of(self, root: RootModule, module: nn.Module) -> Model:
        """Return an outermost module with the settings, weights and submodules that it has now."""
        named = [(root.path_of(one) or "", one) for _, one in module.named_modules()]
        weights = {}
        for path, one in named:
            for key, weight in one._parameters.items():
                if weight is not None:
                    weights[f"{path}.{key}".strip(".")] = self._fingerprint_of(weight), _has_different_values(weight)
        return Model(root, module_settings(named), weights, {path: owners_of(module, path) for path, _ in named})
