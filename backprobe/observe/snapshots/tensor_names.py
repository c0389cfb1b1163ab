"""Names of parameters and buffers, and of the storages that hold them, for a graph that is being read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import nn

from ...basics.errors import BackprobeError
from ...source.roots import clean_path
from ...torch_internals import private
from ..forward.modules import ModuleWatch

if TYPE_CHECKING:
    import torch


class TensorNames:
    """Names of the parameters and buffers of some models. Used while a graph is read, and then released.

    :param model: a model, or several by label; ``None`` for the outermost modules that `watch` has seen.
    """

    def __init__(self, model: nn.Module | Mapping[str, nn.Module] | None, watch: ModuleWatch | None) -> None:
        """Read the names and storages of all parameters and buffers."""
        self._names: dict[int, list[str]] = {}
        self._held: list[torch.Tensor] = []  # keeps tensors alive, so that their ids stay valid
        #: Storage -> (name, whether it belongs to a buffer).
        self.storages: dict[int, tuple[str, bool]] = {}
        self.notes: list[str] = []
        self.model = ""
        models = self._models(model, watch)
        for label, module in models:
            self.model = self.model or (type(module).__name__ if len(models) == 1 else "")
            self._add(label, module)

    @staticmethod
    def _models(model: object, watch: ModuleWatch | None) -> list[tuple[str, nn.Module]]:
        """Return the models to read, each with the label to put before its names.

        :raises BackprobeError: `model` is no module, nor a dict of modules.
        """
        if isinstance(model, nn.Module):
            return [("", model)]
        if isinstance(model, Mapping):
            for label, module in model.items():
                if not isinstance(module, nn.Module):
                    raise BackprobeError(f"model[{label!r}] is a {type(module).__name__}: give a torch.nn.Module")
            return [(str(label), module) for label, module in model.items()]
        if model is not None:
            raise BackprobeError(
                f"model is a {type(model).__name__}: give a torch.nn.Module, or a dict of them by label"
            )
        return [(watch.full_name(root, ""), module) for root, module in watch.models()] if watch is not None else []

    def _add(self, label: str, module: nn.Module) -> None:
        """Add the parameters and buffers of a module, under all names that they have."""
        every = [(True, *pair) for pair in module.named_buffers(remove_duplicate=False)]
        every += [(False, *pair) for pair in module.named_parameters(remove_duplicate=False)]
        for buffer, path, tensor in every:
            path = clean_path(module, path)
            name = f"{label}.{path}" if label else path
            self._names.setdefault(id(tensor), []).append(name)
            self._held.append(tensor)
            storage = private.storage_of(tensor)
            if storage is not None:
                self.storages[storage[0]] = (self._names[id(tensor)][0], buffer)

    def of(self, tensor: torch.Tensor) -> tuple[str | None, tuple[str, ...]]:
        """Return the name of a tensor, and its other names."""
        names = self._names.get(id(tensor), ())
        return (names[0], tuple(dict.fromkeys(names[1:]))) if names else (None, ())
