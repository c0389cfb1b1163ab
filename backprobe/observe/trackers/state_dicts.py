"""Detects loads of state dicts whose tensors are the parameters' own memory: they change nothing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn

from ... import thresholds
from ...records import Site, StateNotCopied
from ...source.frames import CodeLocation
from ...source.state_dicts import keeps_for, other_name_of
from ...torch_internals import private, state_dicts
from ...torch_internals.measure import spread
from ...torch_internals.optimizers import ids_held_by
from ...torch_internals.references import IdentityMap
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The most modules that are followed, parameters of one that are sampled, states of one that are remembered, and lines
#: that load in vain.
MAX_MODULES, MAX_SAMPLED, MAX_STATES, MAX_LOADS = 16, 4, 32, 50
#: Maximum number of elements of a parameter that are compared with the loaded ones.
MAX_COMPARED_ELEMENTS = 64


@dataclass
class _Weight:
    """A sampled parameter.

    :ivar steps, loads: how often an optimizer stepped that holds it, and how often other values were loaded into it.
    :ivar version: its version counter after the last of these: with any other, something else wrote to it since.
    """

    ref: weakref.ref[torch.Tensor]
    version: int
    steps: int = 0
    loads: int = 0


#: Steps, loads and version counter of a weight.
_WeightMark = tuple[int, int, int]


@dataclass
class _Model:
    """A module that gave a state dict, and the last ones that it gave."""

    ref: weakref.ref[nn.Module]
    weights: tuple[_Weight, ...]
    states: list[_State] = field(default_factory=list)

    def marks(self) -> tuple[_WeightMark, ...]:
        """Return the current state of the sampled weights: their numbers of steps and loads, and their version
        counters.
        """
        return tuple((one.steps, one.loads, _version(one)) for one in self.weights)

    def is_at(self, marks: tuple[_WeightMark, ...]) -> bool:
        """Return whether no step and no load has changed the weights since `marks`."""
        return all((one.steps, one.loads) == mark[:2] for one, mark in zip(self.weights, marks, strict=True))


@dataclass
class _State:
    """A state dict.

    :ivar ref: it is gone if the script keeps a copy of the dict only. ``metadata``: copies of the dict may share it.
    :ivar step, marks: when it was taken, and of its model then.
    """

    model: _Model
    ref: weakref.ref[object]
    spot: CodeLocation
    step: int
    marks: tuple[_WeightMark, ...]
    metadata: weakref.ref[object] | None = None

    def is_source_of(self, given: object) -> bool:
        """Return whether `given` is the state dict, or a copy of the dict with the same metadata."""
        if self.ref() is given:
            return True
        metadata = state_dicts.metadata_of(given)
        return metadata is not None and self.metadata is not None and self.metadata() is metadata

    def changes(self) -> tuple[int, bool]:
        """Return how many steps the weights made since, and whether other values were loaded into them.

        Neither counts if something else has written to them since the last step or load.
        """
        pairs = list(zip(self.model.weights, self.marks, strict=True))
        for one, (steps, loads, version) in pairs:
            now = version if (one.steps, one.loads) == (steps, loads) else one.version
            if _version(one) != now:
                return 0, False
        steps = max((one.steps - mark[0] for one, mark in pairs), default=0)
        return steps, any(one.loads > mark[1] for one, mark in pairs)


@dataclass
class _VainLoad:
    """A line that loads in vain: the first state that it loaded so, and how often it did."""

    model: str
    step: int
    taken_at: int
    steps: int
    loaded_over: bool
    spots: tuple[CodeLocation, ...]
    exact: bool
    count: int = 1


@dataclass
class _EqualLoad:
    """A line that loads values that the parameters have already, while the script keeps an earlier state of them.

    :ivar first: the step in which it did so first; ``taken_at`` and ``spot``: when and where the kept state was taken,
        ``steps`` steps before. ``count``: how often the line did so; ``changed``: it loaded other values, too.
    """

    model: str
    first: int
    taken_at: int
    steps: int
    spot: CodeLocation
    count: int = 0
    changed: bool = False


@dataclass
class _SharedLoad:
    """A line that loads into a module what another one gave, which has the same memory.

    :ivar marks: of the model when it did so first. ``same``: both are one module.
    """

    model: str
    first: int
    marks: tuple[_WeightMark, ...]
    same: bool
    assigned: CodeLocation | None
    step: int = -1
    steps: int = 0
    count: int = 0


@dataclass
class _OwnLoad:
    """A line that loads into a module the state that the line has just taken from it.

    :ivar first, last: steps in which it did so; ``count``: in how many steps.
    """

    model: str
    first: int
    last: int
    count: int = 1


class StateDictTracker(Tracker):
    """Tracker of calls of ``state_dict``, and of loads that change nothing."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without modules; optimizer steps are followed once a state dict was taken."""
        self._context, self._frames = context, context.frames
        self._models: dict[int, _Model] = {}
        self._vain_loads: dict[tuple[CodeLocation, int], _VainLoad] = {}
        self._shared_loads: dict[tuple[CodeLocation, int], _SharedLoad] = {}
        self._own_loads: dict[tuple[CodeLocation, int], _OwnLoad] = {}
        self._equal_loads: dict[tuple[CodeLocation, int], _EqualLoad] = {}
        #: The last line that made the tensors of a state dict the parameters of a module.
        self._assigning_lines: IdentityMap[CodeLocation] = IdentityMap()
        #: By optimizer: the number of its groups, of followed modules, and the weights that it holds.
        self._weights_by_optimizer: IdentityMap[tuple[int, int, tuple[_Weight, ...]]] = IdentityMap()
        self._hooks = context.step_hooks(self, after=self._after_step)
        self._thread = threading.get_ident()
        context.restorers.append(self.observing_pauses)

    def observing_begins(self) -> None:
        """Listen to state dicts that are taken and loaded, and to optimizer steps if modules are followed."""
        self._thread = threading.get_ident()
        state_dicts.listen(self)
        if self._models:
            self._hooks.attach()

    def observing_pauses(self) -> None:
        """Stop listening to state dicts that are taken and loaded."""
        state_dicts.unlisten(self)

    @property
    def _last_step(self) -> int:
        """Return the last step in which an optimizer has stepped."""
        return max(self._context.steps.next_forward_step - 1, 0)

    def _is_observed(self) -> bool:
        """Return whether this thread is observed and nothing is being traced."""
        return threading.get_ident() == self._thread and not private.tracing()

    # Steps of optimizers: their number and the version counters are needed in fast-path steps, too

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step for each sampled weight that `optimizer` holds.

        Called after every step, also in the fast path.
        """
        for one in self._weights_of(optimizer):
            one.steps += 1
            one.version = _version(one)

    def _weights_of(self, optimizer: torch.optim.Optimizer) -> tuple[_Weight, ...]:
        """Return the sampled weights that `optimizer` holds, from a cache until it gets groups or modules are added."""
        key = len(optimizer.param_groups), len(self._models)
        known = self._weights_by_optimizer.get(optimizer)
        if known is None or known[:2] != key:
            held = ids_held_by(optimizer)
            weights = (one for model in self._models.values() for one in model.weights)
            known = *key, tuple(one for one in weights if id(one.ref()) in held)
            self._weights_by_optimizer[optimizer] = known
        return known[2]

    # State dicts that are taken

    def taken(self, module: nn.Module, state: object, frame: FrameType) -> None:
        """Note that user code takes the state dict of `module`, and the state of the weights.

        Called by ``state_dicts``.
        """
        if not self._is_observed():
            return
        try:
            spot = self._frames.spot(state_dicts.caller_of(frame))
            if spot is not None:
                with private.measuring():
                    self._add_state(module, state, spot)
        except Exception as error:
            self._context.events.fault(self, error)

    def _add_state(self, module: nn.Module, state: object, spot: CodeLocation) -> None:
        """Remember a state dict, taken from `module` at `spot`, and follow the module from its first one on."""
        model = self._models.get(id(module))
        if model is None or model.ref() is not module:
            if len(self._models) >= MAX_MODULES:
                return
            weights = tuple(_Weight(private.tensor_ref(p), p._version) for p in _sample(module))
            if not weights:
                return
            model = self._models[id(module)] = _Model(weakref.ref(module), weights)
            self._weights_by_optimizer.clear()
            self._hooks.attach()
        step = self._last_step
        del model.states[: -MAX_STATES + 1]
        model.states.append(_State(model, weakref.ref(state), spot, step, model.marks()))

    def described(self, state: object, metadata: object) -> None:
        """Note the metadata of a state dict that was just taken, by which copies of the dict are recognised."""
        for model in self._models.values():
            if model.states and model.states[-1].ref() is state:
                model.states[-1].metadata = weakref.ref(metadata)

    # State dicts that are loaded

    def loads(self, module: nn.Module, state: object, assign: bool, strict: bool, frame: FrameType) -> None:
        """Check a state dict that is about to be loaded: whether its tensors are the parameters' memory, or equal to
        them.

        Called by ``state_dicts``. `assign`: its tensors become the parameters instead of being copied into them.
        """
        if not self._models or not self._is_observed() or not isinstance(state, dict):
            return
        try:
            caller = state_dicts.caller_of(frame)
            spot = self._frames.spot(caller) if caller is not None and self._frames.is_user(caller.f_code) else None
            with private.measuring():
                own = list(nn.Module.named_parameters(module, remove_duplicate=False))
                is_own = _has_own_memory(own, state)
                if is_own and spot is not None:
                    self._note_vain_load(module, state, spot)
                elif spot is not None:
                    self._note_equal_load(module, own, state, spot)
                if assign and spot is not None:
                    self._assigning_lines[module] = spot
                elif not assign:
                    self._note_writes(own, state, is_own)
        except Exception as error:
            self._context.events.fault(self, error)

    def _note_writes(self, own: Iterable[tuple[str, object]], state: dict[str, object], is_own: bool) -> None:
        """Note what the version counters of the weights will be when the state is loaded.

        :param is_own: the state's tensors are the parameters' own memory, so that no value changes.
        """
        counts: dict[int, int] = {}
        for name, parameter in own:
            counts[id(parameter)] = counts.get(id(parameter), 0) + (name in state)
        for model in self._models.values():
            for one in model.weights:
                count = counts.get(id(one.ref()), 0)
                if not count:
                    continue
                if not is_own:
                    one.loads += 1
                    one.version = _version(one) + count
                elif one.version == _version(one):
                    one.version += count

    def _note_vain_load(self, module: nn.Module, given: object, spot: CodeLocation) -> None:
        """Note that `spot` loads a state dict which is the parameters' own memory, if steps or loads have changed it
        since.

        :param given: the state dict, or a copy of the dict.
        """
        states = [one for model in self._models.values() for one in model.states]
        exact = next((one for one in reversed(states) if one.is_source_of(given)), None)
        found = [exact] if exact is not None else self._states_of_copies(module, states, spot)
        if not found:
            return
        steps, loaded_over = found[0].changes()
        held = self._context.steps.optimizers.held_parameters
        if not any(id(one.ref) in held for one in found[0].model.weights):  # no optimizer trains the model
            if exact is not None and exact.model.ref() is module and not (steps or loaded_over):
                self._note_own_load(module, exact, spot)
            return
        if exact is not None and exact.model.is_at(exact.marks):
            self._note_shared_load(module, exact.model, spot)
        elif steps or loaded_over:
            known = self._vain_loads.get((spot, id(module)))
            if known is not None:
                known.count += 1
            elif len(self._vain_loads) < MAX_LOADS:
                spots = tuple(dict.fromkeys(one.spot for one in found))
                when = self._last_step, found[0].step, steps, loaded_over
                self._vain_loads[spot, id(module)] = _VainLoad(type(module).__name__, *when, spots, exact is not None)

    def _note_equal_load(
        self, module: nn.Module, own: list[tuple[str, torch.nn.Parameter]], given: dict[str, object], spot: CodeLocation
    ) -> None:
        """Note a load of new tensors with the values that the parameters have already, while the script keeps an
        earlier state.

        :param own: the module's parameters by name; `given`: the state dict that the line `spot` loads.
        """
        known, model = self._equal_loads.get((spot, id(module))), self._models.get(id(module))
        if model is None or model.ref() is not module or (known is not None and known.changed):
            return
        kept = next((one for one in reversed(model.states) if one.ref() is not None and one.changes()[0]), None)
        if kept is None and known is None:
            return
        if known is None and len(self._equal_loads) < MAX_LOADS and kept is not None:
            known = self._equal_loads[spot, id(module)] = _EqualLoad(
                type(module).__name__, self._last_step, kept.step, kept.changes()[0], kept.spot
            )
        if known is not None and _has_equal_values(own, given):
            known.count += kept is not None
        elif known is not None:
            known.changed = True

    def _note_own_load(self, module: nn.Module, state: _State, spot: CodeLocation) -> None:
        """Note that a line loads what it has just taken from the same module, which is not trained: a slip."""
        taken, loaded = self._frames.site(state.spot), self._frames.site(spot)
        if taken is None or loaded is None or (taken.file, taken.line) != (loaded.file, loaded.line):
            return
        known, now = self._own_loads.get((spot, id(module))), self._last_step
        if known is not None:
            known.count += now > known.last
            known.last = now
        elif len(self._own_loads) < MAX_LOADS:
            self._own_loads[spot, id(module)] = _OwnLoad(type(module).__name__, now, now)

    def _states_of_copies(self, module: nn.Module, states: list[_State], spot: CodeLocation) -> list[_State]:
        """Return the states, the last one first, of which `module` may be given a copy of the dict.

        None if one of them was just taken: it may be that one.
        """
        found = [one for one in reversed(states) if one.ref() is None and one.model.ref() is module]
        loaded = self._frames.site(spot)
        named = [one for one in found if loaded and (at := self._frames.site(one.spot)) and keeps_for(at, loaded)]
        found = named or found
        return found if all(any(one.changes()) for one in found) else []

    def _note_shared_load(self, module: nn.Module, model: _Model, spot: CodeLocation) -> None:
        """Note that `module` loads the state that `model` has just given, whose tensors it shares; count training in
        between.
        """
        source = model.ref()
        if source is None or (source is not module and (_is_inside(source, module) or _is_inside(module, source))):
            return
        known = self._shared_loads.get((spot, id(module)))
        if known is None:
            if len(self._shared_loads) < MAX_LOADS:
                first = type(module).__name__, self._last_step, model.marks()
                assigned = self._assigning_lines.get(module)
                self._shared_loads[spot, id(module)] = _SharedLoad(*first, source is module, assigned)
            return
        steps = max(one.steps - mark[0] for one, mark in zip(model.weights, known.marks, strict=False))
        if steps:
            known.step = known.step if known.count else self._last_step
            known.count, known.steps = known.count + 1, steps

    def records(self) -> Iterator[StateNotCopied]:
        """Yield a record for each line whose loads change nothing, by the reason why."""
        site = self._frames.site
        for (spot, _), vain in self._vain_loads.items():
            numbers = vain.step, vain.count, vain.taken_at, vain.steps, vain.loaded_over
            yield StateNotCopied(vain.model, *numbers, False, self._sites(vain.spots), vain.exact, site(spot))
        for (spot, _), equal in self._equal_loads.items():
            if equal.count >= thresholds.UNCHANGED_STATE_MIN_LOADS and not equal.changed:
                when = equal.first, equal.count, equal.taken_at, equal.steps, False, False
                taken = self._sites((equal.spot,))
                yield StateNotCopied(equal.model, *when, taken, True, site(spot), computed=True)
        for (spot, _), own in self._own_loads.items():
            line = site(spot)
            if own.count >= thresholds.OWN_STATE_MIN_LOADS and line is not None:
                numbers = own.first, own.count, own.first, own.last - own.first, False
                yield StateNotCopied(own.model, *numbers, False, (line,), True, line, own=True)
        for (spot, _), one in self._shared_loads.items():
            loaded = site(spot)
            if not one.count or loaded is None:
                continue
            made = other_name_of(loaded) if one.same else site(one.assigned)
            if made is not None or not one.same:
                numbers = one.step, one.count, one.first, one.steps, False
                cause = (made,) if made is not None else ()
                yield StateNotCopied(one.model, *numbers, True, cause, not one.same and bool(cause), loaded)

    def _sites(self, spots: Iterable[CodeLocation]) -> tuple[Site, ...]:
        """Return the different lines at `spots`, without those that are unknown."""
        return tuple(dict.fromkeys(one for spot in spots if (one := self._frames.site(spot)) is not None))


def _version(weight: _Weight) -> int:
    """Return the version counter of a weight; -1 if it was freed."""
    parameter = weight.ref()
    return int(parameter._version) if parameter is not None else -1


def _sample(module: nn.Module) -> list[torch.Tensor]:
    """Return some of the parameters of a module that are trained, far from each other."""
    found = [p for p in nn.Module.parameters(module) if p.requires_grad and _has_memory(p)]
    chosen: list[torch.Tensor] = spread(found, MAX_SAMPLED)
    return chosen


def _has_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is dense and has elements whose memory and version can be read."""
    return private.is_dense(tensor) and not tensor.is_meta and not tensor.is_inference() and tensor.numel() > 0


def _has_own_memory(own: Iterable[tuple[str, torch.Tensor]], state: dict[str, object]) -> bool:
    """Return whether a state has all parameters that are trained, each in the parameter's own memory.

    All parameters count if none is trained, as those of a target network.
    """
    trained = [(name, p) for name, p in own if p.requires_grad] or list(own)
    return bool(trained) and all(_has_same_memory(p, state.get(name)) for name, p in trained)


def _has_equal_values(own: list[tuple[str, torch.nn.Parameter]], state: dict[str, object]) -> bool:
    """Return whether a state has the values of the sampled parameters. Those on an accelerator are not read."""
    pairs = [(p, state.get(name)) for name, p in own if p.requires_grad and p.is_cpu and _has_memory(p)]
    compared: list[tuple[torch.Tensor, torch.Tensor]] = spread(pairs, MAX_SAMPLED)
    return bool(compared) and all(
        private.is_plain(given)
        and given.shape == p.shape
        and torch.equal(_first_elements(p), _first_elements(given).to(p.dtype))
        for p, given in compared
    )


def _first_elements(tensor: torch.Tensor) -> torch.Tensor:
    """Return the first ``MAX_COMPARED_ELEMENTS`` elements of a tensor, detached."""
    return tensor.detach().reshape(-1)[:MAX_COMPARED_ELEMENTS]


def _has_same_memory(parameter: torch.Tensor, given: Any) -> bool:
    """Return whether `given` is a tensor at the same address as `parameter`, of the same shape, strides and dtype."""
    if not (private.is_plain(given) and _has_memory(parameter) and _has_memory(given)):
        return False
    if parameter.data_ptr() != given.data_ptr():
        return False
    return bool((parameter.shape, parameter.stride(), parameter.dtype) == (given.shape, given.stride(), given.dtype))


def _is_inside(module: nn.Module, other: nn.Module) -> bool:
    """Return whether `module` is `other` or one of its submodules."""
    return any(one is module for one in nn.Module.modules(other))
