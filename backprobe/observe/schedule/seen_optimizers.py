"""The optimizers of a script, as they were seen being created or stepping, and the parameters that they hold."""

from __future__ import annotations

import weakref
from collections.abc import Callable, ValuesView
from dataclasses import dataclass, field
from itertools import islice

import torch

from ...records import OptimizerSeen
from ...source.assignments import argument_assigned
from ...source.frames import CodeLocation
from ...torch_internals import private
from ..forward.naming import Naming

#: Optimizers above which no more are noted when they are created.
MAX_NOTED_OPTIMIZERS = 1000
#: References to parameters of optimizers above which those to freed parameters are dropped.
MAX_HELD = 100_000
#: Freed optimizers that are still reported after a later one has got their id.
MAX_FREED_OPTIMIZERS = 16


@dataclass
class SeenOptimizer:
    """An optimizer: its class, where it was created, and weak references to the parameters that it holds."""

    name: str
    spot: CodeLocation | None
    refs: dict[int, weakref.ref[torch.Tensor]]
    ref: weakref.ref[torch.optim.Optimizer]
    #: The parameters of all modules in variables where it was created.
    visible: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)
    #: How many parameters it held when it stepped last; -1 if it has not.
    count: int = -1
    #: How many groups it has, how many of them are empty, and how many of its parameters are listed twice or frozen.
    groups: int = 1
    empty_groups: int = 0
    duplicates: int = 0
    frozen_parameters: int = 0
    #: The node counter at its last known step; and the last training step outside the fast path in which it stepped,
    #: and that in which its parameters were sampled.
    last_counter: int = -1
    step: int = -1
    sampled_step: int = -1


class SeenOptimizers:
    """The optimizers that were seen being created, or stepping.

    :ivar held_parameters: parameters that an optimizer held when it stepped, by the id of the reference: a new
        parameter may have the id of a freed one.
    :ivar fast_path_counters: by the id of an optimizer, the node counter when it stepped in the fast path, until
        ``take_fast_path_steps``.
    :param forget: called with the id of an optimizer that is gone, before a new one may get this id.
    """

    def __init__(self, names: Naming, forget: Callable[[int], None]) -> None:
        """Start without optimizers."""
        self._names, self._forget = names, forget
        #: By id. Negative numbers: those that were freed, and whose id a later one has.
        self._by_id: dict[int, SeenOptimizer] = {}
        self._freed = 0
        self.held_parameters: dict[int, weakref.ref[torch.Tensor]] = {}
        self.fast_path_counters: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, by: int) -> SeenOptimizer | None:
        """Return the optimizer that has, or had last, the id `by`; ``None`` if none has."""
        return self._by_id.get(by)

    def values(self) -> ValuesView[SeenOptimizer]:
        """Return the entry of each optimizer that was seen."""
        return self._by_id.values()

    def has(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether `optimizer` was seen before."""
        known = self._by_id.get(id(optimizer))
        return known is not None and known.ref() is optimizer

    def note(
        self, optimizer: torch.optim.Optimizer, spot: CodeLocation | None, modules: Callable[[], list[torch.nn.Module]]
    ) -> None:
        """Note an optimizer that is being created, or given more parameters, at `spot`, where `modules` are visible."""
        if len(self._by_id) >= MAX_NOTED_OPTIMIZERS or self.has(optimizer):
            return
        known = self.see(optimizer, spot)
        parameters = {id(p): p for m in modules() for p in m.parameters()}
        known.visible = {key: private.tensor_ref(p) for key, p in parameters.items()}
        for p in parameters.values():
            if not p.requires_grad:
                self._names.leaves.note_frozen(p)

    def see(self, optimizer: torch.optim.Optimizer, spot: CodeLocation | None = None) -> SeenOptimizer:
        """Return what is known of `optimizer`, which is new if it was not seen before; then `spot` created it."""
        by = id(optimizer)
        known = self._by_id.get(by)
        if known is None or known.ref() is not optimizer:
            if known is not None and self._freed < MAX_FREED_OPTIMIZERS:
                self._freed += 1
                self._by_id[-self._freed] = known
            ref = weakref.ref(optimizer, lambda _: self._note_freed(by))
            known = self._by_id[by] = SeenOptimizer(type(optimizer).__name__, spot, {}, ref)
        return known

    def _note_freed(self, by: int) -> None:
        """Note that the optimizer with the id `by` was freed: its parameters must be read again if another one gets the
        id.
        """
        if (known := self._by_id.get(by)) is not None:
            known.count = -1
            known.last_counter = max(known.last_counter, self.fast_path_counters.pop(by, -1))
        self._forget(by)

    def note_parameters(self, known: SeenOptimizer, parameters: list[torch.Tensor], groups: list[int]) -> None:
        """Note the parameters of an optimizer that steps for the first time, or with another number of them.

        :param groups: the number of parameters of each group.
        """
        known.count = len(parameters)
        known.groups, known.empty_groups = len(groups), groups.count(0)
        known.duplicates = len(parameters) - len({id(p) for p in parameters})
        if not known.visible:  # it was made in a step that was not recorded
            self._note_frozen_outside(parameters)
        for p in parameters:
            ref = private.tensor_ref(p)
            self.held_parameters[id(ref)] = known.refs[id(p)] = ref
        if len(self.held_parameters) > MAX_HELD:
            self.held_parameters = {key: ref for key, ref in self.held_parameters.items() if ref() is not None}

    def _note_frozen_outside(self, parameters: list[torch.Tensor]) -> None:
        """Note frozen parameters that other optimizers hold and that are not among `parameters`."""
        held = set(map(id, parameters))
        for ref in self.held_parameters.values():
            tensor = ref()
            if tensor is not None and id(tensor) not in held and not tensor.requires_grad:
                self._names.leaves.note_frozen(tensor)

    def take_fast_path_steps(self) -> list[tuple[torch.optim.Optimizer, int]]:
        """Return the optimizers that stepped in the fast path, in order, with the node counter then, and forget it."""
        stepped, self.fast_path_counters = self.fast_path_counters, {}
        found = []
        for by, counter in sorted(stepped.items(), key=lambda pair: pair[1]):
            known = self._by_id.get(by)
            optimizer = known.ref() if known is not None else None
            if known is not None and optimizer is not None:
                known.last_counter = counter
                found.append((optimizer, counter))
        return found

    def updated_since(self, ref: weakref.ref[torch.Tensor], node_counter: int) -> bool:
        """Return whether an optimizer that holds the tensor `ref` has stepped since the counter was `node_counter`."""
        return any(
            max(one.last_counter, self.fast_path_counters.get(by, -1)) > node_counter
            and any(ref is held for held in one.refs.values())
            for by, one in self._by_id.items()
        )

    @property
    def visible_parameters(self) -> list[dict[int, weakref.ref[torch.Tensor]]]:
        """Return, for each optimizer that stepped, the parameters of the modules visible where it was created."""
        return [one.visible for one in self.values() if one.visible and one.refs]

    def sample_parameters(self) -> list[torch.Tensor]:
        """Return up to four parameters that live optimizers hold."""
        alive = (one for one in self.values() if one.ref() is not None)
        parameters = (ref() for one in alive for ref in one.refs.values())
        return list(islice((p for p in parameters if p is not None), 4))

    def records(self) -> tuple[OptimizerSeen, ...]:
        """Return a record of each optimizer that was created or stepped."""
        frames, leaves = self._names.frames, self._names.leaves
        found = []
        for one in self.values():
            orphans = leaves.orphans(one.refs)
            told = len(one.refs), orphans, one.groups, one.empty_groups, one.duplicates, one.frozen_parameters
            made = frames.site(one.spot)
            given = argument_assigned(made, (one.name,)) if made is not None else None
            found.append(OptimizerSeen(one.name, made, *told, given))
        return tuple(found)
