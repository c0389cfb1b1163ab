"""Edits of the gradients at module outputs and inputs.

Note [Gradients at inputs]: The gradient at a module's output is all that reaches that tensor. The gradient at its input
    is what comes through this call of the module alone: the tensor may have other uses (a residual connection), so the
    module is given an alias of it (``view_as``), and the hook is on the alias.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ...source.roots import clean_path
from ...torch_internals import compiled_regions, modes
from ...torch_internals.structure import leaves
from .backwards import CallCounter
from .log import EditPlace, Log, Unused
from .rules import Chain, Rule
from .swap import Swap, spelled
from .tensors import TensorHooks


class Member:
    """A chosen module: its names, its rules, and how often it was called."""

    def __init__(self, module: nn.Module, name: str) -> None:
        """Take a chosen module and its path."""
        self.ref = weakref.ref(module)
        self.name = name
        self.also: tuple[str, ...] = ()
        self.rules: list[Rule] = []
        self.calls = 0
        #: Tensors in its outputs or inputs that a gradient can come to.
        self.places = 0
        self.class_name = type(module).__name__
        #: Thread -> what is exchanged in the calls that run there, innermost last.
        self.swaps: dict[int, list[Swap]] = {}

    @property
    def label(self) -> str:
        """The module's path; the class name for the model itself."""
        return self.name or self.class_name


def members(model: nn.Module, rules: Sequence[Rule]) -> list[Member]:
    """Return the modules that `rules` choose, each once, in the model's order, by paths without wrapper levels.

    Raises:
        BackprobeError: where a rule fits no module.
    """
    found: dict[int, Member] = {}
    names: list[str] = []
    for path, module in model.named_modules(remove_duplicate=False):
        name = clean_path(model, path)
        names.append(name)
        fitting = [rule for rule in rules if rule.fits(name, module)]
        if not fitting:
            continue
        member = found.get(id(module))
        if member is None:
            member = found[id(module)] = Member(module, name)
        else:
            member.also = (*member.also, name)
        numbers = {rule.number: rule for rule in (*member.rules, *fitting)}
        member.rules = [numbers[n] for n in sorted(numbers)]
    for rule in rules:
        rule.fits.check(names, "module")
    return list(found.values())


class ModuleHooks:
    """Forward hooks on the chosen modules, which put hooks on the tensors of each call.

    :param where: ``"output"`` or ``"input"``.
    """

    def __init__(
        self,
        model: nn.Module,
        rules: Sequence[Rule],
        where: str,
        tensors: TensorHooks,
        log: Log,
        calls: CallCounter,
    ) -> None:
        """Register forward hooks on the modules that the rules choose.
        :raises BackprobeError: a rule matches no module.
        """
        self._where, self._tensors, self._log, self._calls = where, tensors, log, calls
        self._members = members(model, rules)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._active = True
        for member in self._members:
            module = member.ref()
            assert module is not None
            if where == "output":
                self._handles.append(module.register_forward_hook(self._output_hook(member)))
            else:
                before, after = self._input_hooks(member)
                self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                self._handles.append(module.register_forward_hook(after, always_call=True))

    def _here(self, member: Member, module: nn.Module) -> bool:
        """Return whether to edit this call: it is not in a compiled region, nor on a copy of the module."""
        return not modes.compiling() and self._active and member.ref() is module

    def _output_hook(self, member: Member) -> Callable[..., object]:
        """Return the forward hook that edits the gradients at the outputs of a module."""

        def note_output(module: nn.Module, args: object, output: object) -> None:
            """Count the call, and register edits on the tensors in its output."""
            if not self._here(member, module):
                return
            member.calls += 1
            if not torch.is_grad_enabled():
                return
            seen = set()
            for path, tensor in leaves(output, spelled=spelled):
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad and id(tensor) not in seen:
                    seen.add(id(tensor))
                    member.places += 1
                    self._tensors.add(tensor, self._chain(member, path))

        return note_output

    def _input_hooks(self, member: Member) -> tuple[Callable[..., object], Callable[..., object]]:
        """Return the forward pre-hook that replaces a module's inputs by aliases with edits, and the hook that undoes
        it.
        """

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
            """Count the call, and return its arguments with the tensors replaced."""
            if not self._here(member, module):
                return None
            member.calls += 1
            aliases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

            def alias(path: str, tensor: torch.Tensor) -> torch.Tensor:
                """Return the alias of a tensor, with the edits registered on it; the tensor itself if it gets no
                gradient.
                """
                if not (tensor.requires_grad and torch.is_grad_enabled()):
                    return tensor
                known = aliases.get(id(tensor))
                if known is None:
                    known = aliases[id(tensor)] = (tensor, tensor.view_as(tensor))
                    member.places += 1
                    self._tensors.add(known[1], self._chain(member, path))
                return known[1]

            swap = Swap(alias)
            member.swaps.setdefault(threading.get_ident(), []).append(swap)
            args = tuple(swap.swapped(value, f"[{i}]") for i, value in enumerate(args))
            return args, {key: swap.swapped(value, f".{key}") for key, value in kwargs.items()}

        def after(module: nn.Module, args: object, output: object) -> None:
            """Put the original tensors back into containers of the arguments."""
            running = member.swaps.get(threading.get_ident())
            if running and member.ref() is module:
                running.pop().undo()

        return before, after

    def _chain(self, member: Member, path: str) -> Chain:
        """Return the module's rules as a chain for the tensor at `path` of the current call."""
        place = EditPlace(self._where, member.label, path, member.calls, member.also)
        return Chain(place, member.rules, self._log, self._calls)

    def stop(self) -> None:
        """Remove the hooks, and put back tensors that are still replaced."""
        self._active = False
        while self._handles:
            self._handles.pop().remove()
        for member in self._members:
            for running in member.swaps.values():
                while running:
                    running.pop().undo()

    def unused(self) -> list[Unused]:
        """Return the rules that were not applied at a chosen module, with reasons."""
        found = []
        for member in self._members:
            reason = "no gradient came"
            if not member.calls:
                reason = "it was not called as a module"
                if compiled_regions.in_use():
                    reason += ", or in a compiled region, where hooks do not run"
            elif not member.places:
                reason = f"its {self._where} holds no tensor that needs a gradient"
            for rule in member.rules:
                if not self._log.has(rule.number, self._where, member.label):
                    found.append(Unused(f"{self._where} of module {member.label!r}", rule.text, reason))
        return found
