"""Detects containers in which one module with parameters stands in several places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from torch import nn

from ...records import RepeatedModule
from ...source.repetition import repetitions
from ...source.roots import RootModule
from ...torch_internals import private
from ...torch_internals.optimizers import ids_held_by
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    import torch

#: The maximum number of findings, of modules of a model that are searched, and of attributes and places of a container.
MAX_REPEATED, MAX_MODULES, MAX_PLACES = 20, 10_000, 1000
#: Containers whose places a script fills.
CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
#: Activations with parameters, which models often share.
OFTEN_SHARED = (nn.PReLU,)


class RepeatedModules(Tracker):
    """Tracker of modules that stand several times in a container, while an optimizer trains them."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        #: By (name of the container, class of the module): the record without lines.
        self._found: dict[tuple[str, str], RepeatedModule] = {}

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Search all models for repeated modules that the optimizer trains, in steps that are a power of two."""
        step = self._context.steps.index
        if step & (step - 1) or len(self._found) >= MAX_REPEATED:
            return
        with private.measuring():
            held = ids_held_by(optimizer)
            for root, model in self._context.modules.models():
                self._search(root, model, held)

    def _search(self, root: RootModule, model: nn.Module, held: set[int]) -> None:
        """Search the containers in a model, and lists and dicts in attributes of its modules.

        :param held: the ids of the parameters that the optimizer holds.
        """
        modules = list(islice(model.modules(), MAX_MODULES))
        parents = {id(child): (one, name) for one in reversed(modules) for name, child in one._modules.items()}
        for module in modules:
            path = root.path_of(module)
            if path is None:
                continue
            if isinstance(module, CONTAINERS):
                owner, attribute = parents.get(id(module), (None, ""))
                while isinstance(owner, CONTAINERS):
                    owner, attribute = parents.get(id(owner), (None, ""))
                self._note(root, (path, owner, attribute), module, list(module._modules.values()), held)
            for name, value in vars(module).items():
                if name not in _MODULE_ATTRIBUTES and isinstance(value, (list, tuple, dict)):
                    places = list(value.values()) if isinstance(value, dict) else value
                    self._note(root, (f"{path}.{name}".strip("."), module, name), value, places, held)

    def _note(
        self,
        root: RootModule,
        held_by: tuple[str, object, str],
        container: object,
        places: Sequence[object],
        held: set[int],
    ) -> None:
        """Record the modules that stand in several of the places of a container.

        :param held_by: the path of the container, the module of the user's class that has it, and the attribute.
        """
        if not 1 < len(places) <= MAX_PLACES:
            return
        path, owner, attribute = held_by
        for number, count in Counter(map(id, places)).items():
            module = next(one for one in places if id(one) == number) if count > 1 else None
            if not isinstance(module, nn.Module) or isinstance(module, OFTEN_SHARED):
                continue
            trained = {name: p for name, p in module.named_parameters() if p.requires_grad and id(p) in held}
            if not trained:
                continue
            name, inside = self._context.modules.full_name(root, path), root.path_of(module)
            prefix = self._context.modules.full_name(root, inside) if inside is not None else name
            found = RepeatedModule(
                name,
                type(container).__name__,
                type(module).__name__,
                attribute,
                tuple(one.__name__ for one in type(owner).__mro__),
                count,
                len(places),
                tuple(f"{prefix}.{inner}".strip(".") for inner in trained),
                sum(p.numel() for p in trained.values()),
                self._context.steps.index,
            )
            self._found.setdefault((name, found.module), found)

    def records(self) -> Iterator[RepeatedModule]:
        """Yield a record of each repeated module, with the lines that repeat it, unless one of these is meant."""
        for one in self._found.values():
            lines = repetitions(self._context.frames, one.attribute, one.owners, one.module, one.count)
            if lines and not any(line.meant for line in lines):
                registered = any(line.registered for line in lines)
                yield replace(one, lines=tuple(line.site for line in lines), registered=registered)


#: Attributes of every module, which hold registered objects and hooks.
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
