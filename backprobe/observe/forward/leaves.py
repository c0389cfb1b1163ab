"""The script's leaf tensors, parameters above all: their names, and whether they got gradients and are trained.

Note [Ids and weak references]: a script's model may be gone when the script has ended, and Python may reuse its ``id``
for another object. So everything about a parameter is recorded while it lives, and an id counts only while the weak
reference beside it is alive.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import FrameType
from typing import Any

import torch
from torch import nn

from ...records import FreeParameter, Parameter, Site, Unseen
from ...source.assignments import thawing
from ...source.definitions import Owner, choices, defined_at, replaced_at, used
from ...source.frames import CodeLocation, Frames, variables
from ...source.roots import RootModule, clean_path, modules_in_sight
from ...torch_internals import private, sharding
from ...torch_internals.measure import shape_of
from ...torch_internals.optimizers import parameters_of
from ...torch_internals.references import IdentityMap
from ...torch_internals.sharding import plain_class
from ..events import Events
from .modules import ModuleWatch

#: How many backward calls must reach a parameter after ``requires_grad`` was turned on, until an optimizer that trains
#: it must have stepped.
MIN_CALLS_AFTER_THAW = 3
#: How many steps of a leaf's optimizer must have found it without a gradient, until no unrecorded call gave it one: the
#: steps 0, 1, 3 and 7 of the optimizer.
MIN_IDLE_CHECKS = 4
#: The attribute under which FSDP keeps the flat parameter of a unit.
FSDP_FLAT_PARAMETER = "_flat_param"


class LeafTensor:
    """A parameter of a module, or another leaf tensor under its name in the user's code."""

    __slots__ = (
        *("alive", "first", "frozen", "idle_checks", "label", "other", "owner", "owners", "parameter", "parts", "path"),
        *(
            "learns_since",
            "left_frozen",
            "reached",
            "ref",
            "requires_grad",
            "root",
            "shape",
            "since",
            "thawed",
            "without_gradient",
        ),
    )

    def __init__(
        self, tensor: torch.Tensor, root: RootModule | None, path: str, owner: nn.Module | None, owners: list[Owner]
    ) -> None:
        """Record a leaf with what is known of it now.

        :param root: its outermost module, with the leaf's `path` in it; ``None`` for a leaf of no module.
        :param owner: the module that has it; `owners`: the classes on the way to that module.
        """
        self.ref: weakref.ref[torch.Tensor] = private.tensor_ref(tensor)
        #: The tensor that replaces this one in the graph, and the leaves that are slices of this one in the module: see
        #: Note [Parameters that are swapped].
        self.other: weakref.ref[torch.Tensor] | None = None
        self.parts: list[LeafTensor] = []
        self.root, self.path = root, path
        self.label = ""
        #: Weak reference to the owning module, one object per module: identifies the module after it is gone.
        self.owner = weakref.ref(owner) if owner is not None else None
        self.owners = owners
        self.shape = shape_of(tensor)
        #: Whether the tensor is a ``Parameter`` (of any subclass): any other leaf may be data.
        self.parameter = isinstance(tensor, nn.Parameter)
        self.requires_grad = bool(tensor.requires_grad)
        self.reached = 0
        self.alive = False
        #: Whether it had no gradient whenever this was checked before a step; ``None`` before the first check.
        self.without_gradient: bool | None = None
        #: How many checked steps of an optimizer that holds it found no gradient before and after the step; ``None`` if
        #: any found one.
        self.idle_checks: int | None = 0
        #: The step of the first backward call that reached the leaf.
        self.first: int | None = None
        #: The line that turned ``requires_grad`` off last.
        self.frozen: CodeLocation | None = None
        #: The line that turned ``requires_grad`` on; in `since`, the node counter at that moment and how many backward
        #: calls had reached the leaf by then.
        self.thawed: CodeLocation | None = None
        #: How many backward calls had been recorded when ``requires_grad`` was turned on, or first seen to be on;
        #: ``None`` if it was on from the start.
        self.learns_since: int | None = None
        #: If it was frozen when an optimizer was made in its sight: the node counter then, and `reached`.
        self.left_frozen: tuple[int, int] | None = None
        self.since = -1, 0

    @property
    def holders(self) -> list[tuple[type, str]]:
        """The classes on the path to the parameter, outermost first, each with the attribute that leads on."""
        names = [*(name for _, name in self.owners[1:]), self.path.rpartition(".")[2]]
        return [(cls, name) for (cls, _), name in zip(self.owners, names, strict=False)]

    def stands_for(self, tensor: object) -> bool:
        """Return whether this record is of `tensor`: Note [Ids and weak references]."""
        return self.ref() is tensor or (self.other is not None and self.other() is tensor)

    def count_gradient(self, step: int, alive: bool) -> None:
        """Count a backward call of `step` that gave the leaf, and the leaves sliced from it, a gradient.

        :param alive: the gradient was not all zero.
        """
        for one in (self, *self.parts):
            one.reached, one.requires_grad = one.reached + 1, True
            one.first = step if one.first is None else one.first
            one.alive = one.alive or alive


class Leaves:
    """All leaf tensors seen so far."""

    def __init__(self, modules: ModuleWatch, frames: Frames, events: Events | None = None) -> None:
        """Start without leaves."""
        self._modules, self._frames, self._events = modules, frames, events or Events()
        #: Whether every step was recorded that could have been.
        self.whole = True
        self._by_id: dict[int, LeafTensor] = {}
        self._all: list[LeafTensor] = []
        #: The length of ``_all``, and its leaves by the id of their references.
        self._by_ref: tuple[int, dict[int, LeafTensor]] = 0, {}
        self._recorded_calls = 0
        #: How many times an optimizer has begun a step, but for those of the fast path.
        self._steps = 0
        #: How many steps each optimizer has begun; leaves without a gradient that the stepping one holds.
        self._steps_of: IdentityMap[int] = IdentityMap()
        self._without: list[LeafTensor] = []
        #: Leaves that belong to no module, by their name in the user's code.
        self._plain: dict[str, LeafTensor] = {}

    def note_coverage(self, whole: bool) -> None:
        """Note whether every step was recorded that could have been."""
        self.whole = whole

    def get(self, tensor: torch.Tensor) -> LeafTensor:
        """Return the leaf record of `tensor`; create it if the tensor is new.

        A new tensor is searched for in the known modules and in those that the user's variables hold; if none has it,
        it gets the name of its variable.
        """
        known = self.known(tensor)
        if known is not None:
            return known
        frame: FrameType | None = sys._getframe(1)
        if tensor.__class__ is not torch.Tensor:
            self.scan()
            known = self.known(tensor)
            if known is not None:
                return known
            for name, module in modules_in_sight(frame, self._frames):  # never called through its hooks
                if any(p is tensor for p in module.parameters()):
                    self._modules.add_root(module, name)
                    self.scan()
                    return self._by_id[id(tensor)]
        self._events.unregistered_leaf_found.emit(tensor)
        label = _label_of(tensor, frame, self._frames)
        plain = self._plain.get(label)
        if plain is None or tensor.__class__ is not torch.Tensor:
            label = self._unique_label(label)
            plain = self._add(LeafTensor(tensor, None, "", None, []), tensor)
            plain.label = label
            self._plain[label] = plain
        return plain

    def _unique_label(self, label: str) -> str:
        """Return `label`, with a number appended if another live leaf has this name."""
        base, n = label or "tensor", 1
        while (other := self._plain.get(label)) is not None and other.ref() is not None and n < 1000:
            n += 1
            label = f"{base}:{n}"
        return label

    def known(self, tensor: torch.Tensor) -> LeafTensor | None:
        """Return the leaf record of `tensor`; ``None`` if there is none."""
        leaf = self._by_id.get(id(tensor))
        return leaf if leaf is not None and leaf.stands_for(tensor) else None

    def names_of(self, refs: Iterable[weakref.ref[torch.Tensor]], parameters_only: bool = False) -> list[str]:
        """Return the names of the leaves behind `refs`, which may be gone; others are skipped.

        :param parameters_only: skip leaves that are no ``Parameter``, such as an input that requires a gradient.
        """
        if self._by_ref[0] != len(self._all):
            self._by_ref = len(self._all), {id(leaf.ref): leaf for leaf in self._all}
        known = self._by_ref[1]
        tensors = ((ref, ref()) for ref in refs)
        found = (known.get(id(ref)) or (self.known(t) if t is not None else None) for ref, t in tensors)
        return [self.name(leaf) for leaf in found if leaf is not None and (leaf.parameter or not parameters_only)]

    def requires_grad_set(self, tensor: torch.Tensor, on: bool, frame: FrameType) -> None:
        """Record that ``requires_grad`` of a known parameter was set to `on`."""
        leaf = self.known(tensor)
        if leaf is not None:
            leaf.requires_grad = on  # kept here because the tensor may be gone later
            if on and not tensor.requires_grad:
                leaf.thawed, leaf.since = self._frames.spot(frame), (private.next_sequence_nr(), leaf.reached)
                leaf.learns_since = self._recorded_calls
            elif tensor.requires_grad and not on:
                leaf.frozen = self._frames.spot(frame)

    def note_frozen(self, tensor: torch.Tensor) -> None:
        """Note that a parameter is frozen where an optimizer is being made: it may be thawed later, unseen."""
        leaf = self.get(tensor)
        leaf.left_frozen = private.next_sequence_nr(), leaf.reached

    def _thawed_unseen(self, leaf: LeafTensor) -> bool:
        """Return whether a parameter that was frozen where an optimizer was made has got a gradient since."""
        return leaf.thawed is None and leaf.left_frozen is not None and leaf.reached > leaf.left_frozen[1]

    def _thawed_at(self, leaf: LeafTensor) -> int | None:
        """Return the node counter since which a thawed parameter should be trained; ``None`` for all others."""
        if leaf.left_frozen is not None and self._thawed_unseen(leaf):
            return leaf.left_frozen[0]
        at, reached = leaf.since
        return at if leaf.thawed is not None and leaf.reached - reached >= MIN_CALLS_AFTER_THAW else None

    def _thawing_line(self) -> Site | None:
        """Return the line of the script that thaws parameters, if there is only one."""
        lines = thawing(self._frames)
        return lines[0] if len(lines) == 1 else None

    def reached(self) -> list[LeafTensor]:
        """Return the leaves to which a backward call gave a gradient."""
        return [leaf for leaf in self._all if leaf.reached]

    def of_same_models(self, leaves: Iterable[LeafTensor]) -> list[LeafTensor]:
        """Return all parameters of the outermost modules that `leaves` belong to."""
        roots = {id(leaf.root) for leaf in leaves if leaf.root is not None}
        return [leaf for leaf in self._all if id(leaf.root) in roots]

    def choices(self, leaf: LeafTensor) -> list[Site]:
        """Return the source lines that use a parameter, or decide whether it is used.

        They are searched in the classes of the modules that hold the parameter, innermost first, and come from the
        first class that has any.
        """
        for cls, name in reversed(leaf.holders):
            found = choices(cls, name)
            if found:
                return found
        return []

    def _add(self, leaf: LeafTensor, tensor: torch.Tensor) -> LeafTensor:
        """Add a new leaf, known from now on by the id of `tensor`, and return it."""
        self._by_id[id(tensor)] = leaf
        if len(self._all) < 200_000:
            self._all.append(leaf)
        return leaf

    def root_found(self) -> None:
        """Scan the modules: there is a new outermost module, and it may be gone before its backward."""
        # This may run under the user's modes. torch.jit names traced values after the calling frame.
        with nullcontext() if private.jit_tracing() is not None else private.disable_function_modes():
            self.scan()

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Note at step 1, 2, 4 and so on which leaves that no recorded call reached have no gradient.

        A model may be gone when its parameters are reported: then this says whether unrecorded calls gave them one.
        """
        count = self._steps_of[optimizer] = (self._steps_of.get(optimizer) or 0) + 1
        self._without = [] if count & (count - 1) else self._without_gradient(optimizer)
        self._steps += 1
        if self._steps & (self._steps - 1):
            return
        for leaf in self._all:
            tensor = leaf.ref()
            if not leaf.reached and leaf.root is not None and tensor is not None and tensor.requires_grad:
                leaf.without_gradient = leaf.without_gradient is not False and tensor.is_leaf and tensor.grad is None

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the leaves to which the step's closure, if it has one, gave no gradient either.

        Frozen ones do not count: they may be thawed later.
        """
        for leaf in self._without:
            tensor = leaf.ref()
            if leaf.idle_checks is not None and tensor is not None and tensor.requires_grad:
                leaf.idle_checks = leaf.idle_checks + 1 if tensor.grad is None else None
        self._without = []

    def _without_gradient(self, optimizer: torch.optim.Optimizer) -> list[LeafTensor]:
        """Return the leaves that `optimizer` holds and that have no gradient; note those that have one."""
        found = []
        for p in parameters_of(optimizer):
            leaf = self.known(p)
            if leaf is not None and p.grad is None:
                found.append(leaf)
            elif leaf is not None:
                leaf.idle_checks = None
        return found

    def scan(self) -> None:
        """Record the parameters of every outermost module that is alive."""
        for root, module in self._modules.models():
            swapped = {id(whole): (whole, own) for own, whole in sharding.swapped(module)}
            for path, owner in module.named_modules():
                for name, p in owner._parameters.items():
                    if p is None:
                        continue
                    p = swapped[id(p)][1] if id(p) in swapped else p
                    known = self._by_id.get(id(p))
                    if known is not None and known.ref() is p:
                        if known.root is None or known.root not in self._modules.roots:
                            known.root, known.path = root, clean_path(module, f"{path}.{name}".strip("."))
                        continue
                    full = f"{path}.{name}" if path else name
                    self._add(LeafTensor(p, root, clean_path(module, full), owner, owners_of(module, path)), p)
            self._scan_sharded(root, module, [*swapped.values()])

    def _scan_sharded(self, root: RootModule, module: nn.Module, swapped: list[tuple[object, object]]) -> None:
        """Record the tensors that replace parameters in the graph: Note [Parameters that are swapped]."""
        for whole, own in swapped:
            leaf = self._by_id.get(id(own))
            if leaf is not None and leaf.ref() is own:
                leaf.other = private.tensor_ref(whole)
                self._by_id[id(whole)] = leaf
        for flat, unit, parts in sharding.flattened(module):
            known = self._by_id.get(id(flat))
            if known is None or known.ref() is not flat:
                path = f"{root.path_of(unit) or ''}.{FSDP_FLAT_PARAMETER}".strip(".")
                known = self._add(LeafTensor(flat, root, path, unit, []), flat)
            known.parts = [leaf for p in parts if (leaf := self._by_id.get(id(p))) is not None and leaf.ref() is p]

    def unseen(self) -> list[Unseen]:
        """Return how many modules got gradients without being called as modules."""
        owners = {id(leaf.owner): leaf.owner for leaf in self.reached()}
        around = sum(self._modules.counts(owner) == (0, 0) for owner in owners.values() if owner is not None)
        if not around:
            return []
        text = "got gradients, but were not called as modules: their own calls are not seen"
        return [Unseen("modules", around, text, hides=False)]

    def orphans(self, refs: dict[int, weakref.ref[torch.Tensor]]) -> int:
        """Return how many of `refs` belong to no model in use.

        These never got a gradient, or were replaced by another parameter of the same name.
        """
        by_ref = {id(leaf.ref): leaf for leaf in self._all}
        last = {(id(leaf.root), leaf.path): leaf for leaf in self._all if leaf.root is not None}
        here = {id(tensor): tensor for leaf in self._all if (tensor := leaf.ref()) is not None}
        count = 0
        for ref in refs.values():
            leaf = by_ref.get(id(ref))
            if leaf is None:  # never part of a module that was called
                unknown = ref() is None or id(ref()) not in here
                count += unknown and not self._may_have_missed(ref())
            elif leaf.root is None:
                count += not (leaf.reached or self._may_have_missed(ref()))
            elif last[(id(leaf.root), leaf.path)] is not leaf:
                count += 1
        return count

    def _may_have_missed(self, tensor: object, seen: bool = True, without_gradient: bool | None = None) -> bool:
        """Return whether an unrecorded step may have given `tensor` a gradient, so that "no gradient" is not known.

        :param seen: a recorded step gave a gradient to another parameter of the model.
        :param without_gradient: what is known of a tensor that is gone.
        """
        has_none = bool(without_gradient) if tensor is None else getattr(tensor, "grad", None) is None
        return not (self.whole or (seen and has_none))

    def refresh(self) -> None:
        """Update ``requires_grad`` of all live leaves."""
        for leaf in self._all:
            tensor = leaf.ref()
            if tensor is None:
                continue
            if tensor.requires_grad and not leaf.requires_grad and leaf.learns_since is None:
                leaf.learns_since = self._recorded_calls
            leaf.requires_grad = bool(tensor.requires_grad)

    def count_recorded_call(self) -> None:
        """Count a backward call that was recorded: a leaf that it did not reach got no gradient from it."""
        self._recorded_calls += 1

    def _is_thawed_since(self, leaf: LeafTensor) -> bool:
        """Return whether a leaf was thawed so late that hardly any recorded backward call can have reached it."""
        since = leaf.learns_since
        return since is not None and self._recorded_calls - since < MIN_CALLS_AFTER_THAW

    def _replaced_at(self, leaf: LeafTensor) -> Site | None:
        """Return the user's line that assigned a new object to this parameter, or to a module around it."""
        sites = (replaced_at(self._frames, name, cls) for cls, name in reversed(leaf.holders))
        return next((site for site in sites if site is not None), None)

    def name(self, leaf: LeafTensor) -> str:
        """Return the display name of a leaf: its full path in the model, or its name in the user's code."""
        if leaf.root is not None:
            return self._modules.full_name(leaf.root, leaf.path)
        return leaf.label or "tensor"

    def parameters(
        self,
        held: dict[int, weakref.ref[torch.Tensor]] | None,
        present: list[dict[int, Any]],
        updated_since: Callable[[weakref.ref[torch.Tensor], int], bool] = lambda ref, since: True,
    ) -> tuple[Parameter, ...]:
        """Return a record of every parameter of a module: gradients, calls of its module, and whether it is trained.

        :param held: weak references to the parameters that optimizers hold; ``None`` if there is no optimizer.
        :param present: for each optimizer, weak references to the parameters of the visible modules when it was
            created.
        :param updated_since: returns whether an optimizer that holds a parameter has stepped since the given node
            counter.
        """
        self.refresh()
        seen = {id(leaf.root) for leaf in self._all if leaf.reached and leaf.root is not None}
        trained = None if held is None else {id(ref) for ref in held.values()}
        found = []
        first: dict[tuple[int, str], LeafTensor] = {}
        last: dict[tuple[int, str], LeafTensor] = {}
        for leaf in self._all:
            if leaf.root is not None:
                first.setdefault((id(leaf.root), leaf.path), leaf)
                last[(id(leaf.root), leaf.path)] = leaf
        later = self._added_after_optimizer(present)
        thawing_line = self._thawing_line() if any(map(self._thawed_unseen, self._all)) else None
        for leaf in self._all:
            if leaf.root is None or leaf.parts:
                continue
            held_too = trained is None or id(leaf.ref) in trained
            unseen, at = self._thawed_unseen(leaf), self._thawed_at(leaf)
            if at is not None and trained is not None:
                held_too = held_too and updated_since(
                    leaf.ref, at
                )  # an optimizer that held it earlier may no longer step
            place = None if held_too or not leaf.reached else self._replaced_at(leaf)
            replaced = first[(id(leaf.root), leaf.path)] is not leaf or place is not None
            if leaf is not last[(id(leaf.root), leaf.path)]:
                continue  # a newer parameter has this name
            idle = (leaf.idle_checks or 0) >= MIN_IDLE_CHECKS
            if not (leaf.reached or idle) and (
                self._is_thawed_since(leaf)
                or self._may_have_missed(leaf.ref(), id(leaf.root) in seen, leaf.without_gradient)
            ):
                continue
            calls, quiet = self._modules.counts(leaf.owner)
            name = leaf.path.rpartition(".")[2]
            learns = leaf.alive or (leaf.reached and not held_too)
            found.append(
                Parameter(
                    self.name(leaf),
                    leaf.shape,
                    leaf.requires_grad,
                    leaf.reached,
                    leaf.alive,
                    None if trained is None else held_too,
                    calls,
                    quiet,
                    leaf.root.label or leaf.root.class_name,
                    place if place is not None or learns else defined_at(leaf.owners, name),
                    replaced,
                    self._modules.turned_off(leaf.owner),
                    not held_too and id(leaf) in later,
                    None if leaf.reached else self._unused_line(leaf),
                    thawing_line if unseen else self._frames.site(leaf.thawed),
                    unseen,
                )
            )
        return tuple(found)

    def _unused_line(self, leaf: LeafTensor) -> Site | None:
        """Return the line that reads the parameter, or that calls the outermost module around it that never ran."""
        module: Any = leaf.root.ref() if leaf.root is not None else None
        for cls, name in leaf.holders:
            module = module._modules.get(name) if module is not None else None
            if module is None:
                return used(cls, name)
            holder = isinstance(module, (nn.ModuleList, nn.ModuleDict))  # containers are not called themselves
            if not holder and not any(self._modules.counts(weakref.ref(module))):
                return used(cls, name)
        return None

    def free_parameters(self, held: dict[int, weakref.ref[torch.Tensor]] | None) -> tuple[FreeParameter, ...]:
        """Return records of leaves that belong to no module: parameters, and other leaves that an optimizer holds."""
        trained = None if held is None else {id(ref) for ref in held.values()}
        last = {
            self.name(leaf): leaf
            for leaf in self._all
            if leaf.root is None and (leaf.parameter or (trained is not None and id(leaf.ref) in trained))
        }
        return tuple(
            FreeParameter(
                *(name, leaf.shape, leaf.requires_grad, leaf.reached, leaf.alive),
                None if trained is None else id(leaf.ref) in trained,
            )
            for name, leaf in last.items()
        )

    def _added_after_optimizer(self, present: list[dict[int, object]]) -> set[int]:
        """Return the ids of the leaves that were added to a model after its optimizer was created."""
        known = {id(ref) for refs in present for ref in refs.values()}
        roots = {id(one.root) for one in self._all if id(one.ref) in known}
        return {id(one) for one in self._all if id(one.root) in roots and id(one.ref) not in known}


def owners_of(root: nn.Module, path: str) -> list[Owner]:
    """Return the classes on the path to a module, outermost first, each with its attribute name in the one before."""
    owners: list[Owner] = [(plain_class(type(root)), "")]
    module: Any = root
    for part in path.split(".") if path else ():
        inside = module._modules
        module = inside[part] if part in inside else None  # noqa: SIM401 (no dict in a scripted module)
        if module is None:
            break
        owners.append((plain_class(type(module)), part))
    return owners


def _label_of(tensor: torch.Tensor, frame: FrameType | None, frames: Frames) -> str:
    """Return the name of the variable that holds `tensor` in the user's frames, the innermost first; empty if there is
    none.
    """
    while frame is not None:
        if frames.is_user(frame.f_code):
            for name, value in variables(frame).items():
                if value is tensor:
                    return str(name)
        frame = frame.f_back
    return ""
