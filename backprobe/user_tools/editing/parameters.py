"""Edits of parameters' gradients, followed through replacement, freezing and tying."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ...source.roots import clean_path
from ...torch_internals import references
from .backwards import CallCounter
from .log import EditPlace, Log, Unused
from .rules import Chain, Rule

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class _Slot:
    """A name in a module under which a parameter is found, and the rules for it."""

    __slots__ = ("attribute", "name", "owner", "rules", "seen", "trained")

    def __init__(self, owner: nn.Module, attribute: str, name: str, rules: list[Rule]) -> None:
        """Take the module, the attribute in it, the full name, and the rules."""
        self.owner, self.attribute, self.name, self.rules = weakref.ref(owner), attribute, name, rules
        #: The parameter that was there at the last look, and whether it required a gradient.
        self.seen: weakref.ref[torch.Tensor] | None = None
        self.trained = False

    def parameter(self) -> torch.Tensor | None:
        """Return the current parameter of that name; if the module no longer exists, the last known one."""
        owner = self.owner()
        if owner is not None:
            there = owner._parameters
            return there[self.attribute] if self.attribute in there else None  # noqa: SIM401 (no dict if scripted)
        return self.seen() if self.seen is not None else None


def _trained(parameter: torch.Tensor | None) -> bool:
    """Return whether the parameter can receive a gradient. A lazy one takes no hook until it is initialised."""
    return parameter is not None and not is_lazy(parameter) and bool(parameter.requires_grad)


class ParameterHooks:
    """Hooks on parameters, one for each tensor however many names it has.

    :param accumulated: edit ``.grad`` after each accumulation, not the gradient before it.
    :raises BackprobeError: where a rule fits no parameter.
    """

    def __init__(
        self, model: nn.Module, rules: Sequence[Rule], accumulated: bool, log: Log, calls: CallCounter
    ) -> None:
        """Find the parameters that the rules match, and hook them."""
        self._log, self._calls, self._accumulated = log, calls, accumulated
        self._slots: list[_Slot] = []
        #: id of the parameter -> weak reference, its chain, the hook's handle.
        self._hooks: dict[int, tuple[weakref.ref[torch.Tensor], Chain, RemovableHandle]] = {}
        names: list[str] = []
        for path, module in model.named_modules(remove_duplicate=False):
            for attribute, parameter in module._parameters.items():
                if parameter is None:
                    continue
                name = clean_path(model, f"{path}.{attribute}" if path else attribute)
                names.append(name)
                fitting = [rule for rule in rules if rule.fits(name, parameter)]
                if fitting:
                    self._slots.append(_Slot(module, attribute, name, fitting))
        for rule in rules:
            rule.fits.check(names, "parameter")
        self.refresh()

    def refresh(self) -> None:
        """Hook what the names stand for now: parameters may have been replaced, frozen or made trainable."""
        if all(self._same(slot) for slot in self._slots):
            return
        wanted: dict[int, tuple[torch.Tensor, list[_Slot]]] = {}
        for slot in self._slots:
            parameter = slot.parameter()
            slot.seen = references.tensor_ref(parameter) if parameter is not None else None
            slot.trained = _trained(parameter)
            if slot.trained:
                wanted.setdefault(id(parameter), (parameter, []))[1].append(slot)
        for key, (ref, _, _) in list(self._hooks.items()):
            parameter = ref()
            if parameter is None or key not in wanted or wanted[key][0] is not parameter:
                self._drop(key)
        for key, (tensor, slots) in wanted.items():
            if key not in self._hooks:
                self._hooks[key] = (references.tensor_ref(tensor), *self._hook(tensor, slots))

    @staticmethod
    def _same(slot: _Slot) -> bool:
        """Return whether the parameter of `slot` is the one seen last, and still frozen or trainable as then."""
        parameter: torch.Tensor | None = slot.parameter()
        if parameter is None:
            return slot.seen is None
        same = slot.seen is not None and slot.seen() is parameter
        return same and slot.trained == _trained(parameter)

    def _hook(self, parameter: torch.Tensor, slots: list[_Slot]) -> tuple[Chain, RemovableHandle]:
        """Register a hook on a parameter with the rules of all its names; return its chain and its handle."""
        rules = {rule.number: rule for slot in slots for rule in slot.rules}
        place = EditPlace("parameter", slots[0].name, also=tuple(slot.name for slot in slots[1:]))
        chain = Chain(place, [rules[n] for n in sorted(rules)], self._log, self._calls)
        if not self._accumulated:
            return chain, parameter.register_hook(chain)

        def after(parameter: torch.Tensor) -> None:
            """Edit the accumulated ``.grad`` of the parameter, in its memory if possible."""
            edited = chain(parameter.grad)
            if edited is None:
                return
            if edited.layout is torch.strided and not (edited.requires_grad or parameter.grad.requires_grad):
                parameter.grad.copy_(edited)  # a data-parallel bucket may look into this memory
            else:
                parameter.grad = edited

        return chain, parameter.register_post_accumulate_grad_hook(after)

    def _drop(self, key: int) -> None:
        """Remove the hook of the parameter with the id `key`."""
        _, chain, handle = self._hooks.pop(key)
        chain.active = False
        handle.remove()

    def stop(self) -> None:
        """Remove all hooks."""
        for key in list(self._hooks):
            self._drop(key)

    def unused(self) -> list[Unused]:
        """Return the places of rules where no gradient was edited, with the reasons."""
        found: dict[tuple[int, str], Unused] = {}
        of: dict[int, list[_Slot]] = {}
        for slot in self._slots:
            ref = slot.seen
            parameter = ref() if ref is not None else None
            of.setdefault(id(parameter) if parameter is not None else id(slot), []).append(slot)
        for slots in of.values():
            for slot in slots:
                for rule in slot.rules:
                    if any(self._log.has(rule.number, "parameter", other.name) for other in slots):
                        continue
                    reason = "it is frozen (requires_grad is False)"
                    if slot.trained:
                        reason = "no gradient came"
                    elif is_lazy(slot.parameter()):
                        reason = "it was not initialised (a lazy module that was not called)"
                    found[rule.number, slot.name] = Unused(f"parameter {slot.name!r}", rule.text, reason)
        return list(found.values())
