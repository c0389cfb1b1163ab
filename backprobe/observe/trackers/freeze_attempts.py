"""Finds assignments that should freeze parameters and only make a Python attribute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from torch import nn

from ...records import FreezeAttempt
from ...source.assignments import attribute_disabled
from ...source.definitions import assigned
from ...source.roots import RootModule
from ...torch_internals import private
from ...torch_internals.optimizers import ids_held_by
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    import torch

#: Attributes that have no meaning for a parameter.
MISSPELT = ("require_grad", "requires_grads", "require_grads", "required_grad", "requires_gradient", "requiers_grad")
#: Attributes that have no meaning for a module, which has the method ``requires_grad_`` instead.
OF_MODULES = ("requires_grad", "requires_grad_", *MISSPELT)
#: The same for a parameter.
OF_PARAMETERS = ("requires_grad_", *MISSPELT)
#: The maximum number of findings, and of modules of a model that are searched.
MAX_ATTEMPTS, MAX_MODULES = 20, 10_000


class FreezeAttemptTracker(Tracker):
    """Tracker of modules and parameters that have such an attribute, set to False, while an optimizer trains them."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        #: By (name of the owner, attribute): the record without lines.
        self._found: dict[tuple[str, str], FreezeAttempt] = {}

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Search all models for such attributes when an optimizer is about to step, in steps that are a power of
        two.
        """
        step = self._context.steps.index
        if step & (step - 1) or len(self._found) >= MAX_ATTEMPTS:
            return
        with private.measuring():
            held = ids_held_by(optimizer)
            for root, model in self._context.modules.models():
                self._search(root, model, held)

    def _search(self, root: RootModule, model: nn.Module, held: set[int]) -> None:
        """Search the modules and parameters of a model for such attributes.

        `held`: ids of the optimizer's parameters.
        """
        for module in islice(model.modules(), MAX_MODULES):
            path = root.path_of(module)
            kind: type = type(module)
            if path is None:
                continue
            for attribute in _disabled(module, OF_MODULES):
                if assigned(kind, attribute) is None:  # or else its own class reads it, most likely
                    trained = [name for name, p in module.named_parameters() if p.requires_grad and id(p) in held]
                    self._note(self._context.modules.full_name(root, path), kind.__name__, attribute, trained)
            for name, p in module._parameters.items():
                if p is not None and p.requires_grad and id(p) in held:
                    for attribute in _disabled(p, OF_PARAMETERS):
                        self._note(self._context.modules.full_name(root, _joined(path, name)), "", attribute, [""])

    def _note(self, owner: str, class_name: str, attribute: str, trained: list[str]) -> None:
        """Note an attribute that was meant to freeze, if the parameters `trained` (names inside `owner`) are
        trained.
        """
        if trained:
            names = tuple(_joined(owner, name) for name in trained)
            found = FreezeAttempt(owner, class_name, attribute, names, self._context.steps.index)
            self._found.setdefault((owner, attribute), found)

    def records(self) -> Iterator[FreezeAttempt]:
        """Yield a record of each such attribute, with the lines of the source that set it."""
        for one in self._found.values():
            lines = tuple(attribute_disabled(self._context.frames, one.attribute, one.owner.rpartition(".")[2]))
            if lines:  # or else a library has an attribute of that name
                yield replace(one, lines=lines)


def _joined(*parts: str) -> str:
    """Return the parts of a name that are not empty, joined by dots."""
    return ".".join(part for part in parts if part)


def _disabled(owner: object, attributes: tuple[str, ...]) -> list[str]:
    """Return the attributes in the dictionary of a module or tensor that are False."""
    own = vars(owner) if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {})
    return [name for name in attributes if own.get(name) is False] if own else []
