"""Detects hooks that pile up: the same function is registered on the same object again and again, and never removed."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import nn

from ... import thresholds
from ...records import HooksPileUp, Site, Step
from ...torch_internals import code_objects, private
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .module_hooks import registered_at

#: Interval, as a share of the steps so far, after which hooks are counted again; they are counted first after step 0.
LOOK_INTERVAL_SHARE = 0.25
#: Maximum interval, in steps, between two counts.
MAX_LOOK_INTERVAL = 64
#: The most hooks whose numbers are kept.
MAX_COUNTED = 20_000
#: Attributes that hold the hooks of a module, of a tensor and of an optimizer, with the methods that register them.
_OF_MODULES = {
    "_forward_hooks": ("register_forward_hook",),
    "_forward_pre_hooks": ("register_forward_pre_hook",),
    "_backward_hooks": ("register_full_backward_hook", "register_backward_hook"),
    "_backward_pre_hooks": ("register_full_backward_pre_hook",),
    "_state_dict_hooks": ("register_state_dict_post_hook", "_register_state_dict_hook"),
    "_state_dict_pre_hooks": ("register_state_dict_pre_hook",),
    "_load_state_dict_pre_hooks": ("register_load_state_dict_pre_hook", "_register_load_state_dict_pre_hook"),
    "_load_state_dict_post_hooks": ("register_load_state_dict_post_hook",),
}
_OF_TENSORS = {
    "_backward_hooks": ("register_hook",),
    "_post_accumulate_grad_hooks": ("register_post_accumulate_grad_hook",),
}
_OF_OPTIMIZERS = {
    "_optimizer_step_pre_hooks": ("register_step_pre_hook",),
    "_optimizer_step_post_hooks": ("register_step_post_hook",),
    "_optimizer_state_dict_pre_hooks": ("register_state_dict_pre_hook",),
    "_optimizer_state_dict_post_hooks": ("register_state_dict_post_hook",),
}
_OWN_FOLDER = str(Path(__file__).resolve().parents[2])


class _Holder(NamedTuple):
    """An object that has hooks: what it is, a function that names it, and its hooks by attribute."""

    thing: object
    name: Callable[[], str]
    attributes: Mapping[str, tuple[str, ...]]


@dataclass
class _HookCount:
    """The number of hooks with the same code on one object.

    :ivar growths: how often it was larger than at the look before; ``first``: the step of the first of these looks.
    :ivar hook: one of the hooks; ``varies``: they hold different tensors, so each may be meant.
    """

    ref: weakref.ref[torch.Tensor] | weakref.ref[torch.nn.Module]
    name: str
    methods: tuple[str, ...]
    code: CodeType
    count: int = 0
    growths: int = 0
    first: int = 0
    last: int = 0
    fell: bool = False
    varies: bool = False
    site: Site | None = None

    @property
    def piles_up(self) -> bool:
        """Return whether the number of hooks grew again and again, never fell, and is large enough."""
        return (
            self.growths >= thresholds.HOOK_COUNT_MIN_GROWTHS
            and self.count >= thresholds.HOOK_COUNT_MIN_HOOKS
            and not self.fell
        )


class HookCountTracker(Tracker):
    """Tracker that counts the hooks on the modules, parameters and optimizers of a script."""

    def __init__(self, context: TrackerContext) -> None:
        self._context, self._modules, self._frames = context, context.modules, context.frames
        #: By object, attribute and code.
        self._counts: dict[tuple[int, str, CodeType], _HookCount] = {}
        #: The last step, and the step after which hooks are counted next.
        self._last_look = self._next = 0

    def step_ended(self, step: Step) -> None:
        """Count all hooks after the step, if it is due; the intervals grow."""
        self._last_look = step.index
        if step.index >= self._next:
            self._next = step.index + 1 + min(int(LOOK_INTERVAL_SHARE * step.index), MAX_LOOK_INTERVAL - 1)
            self._count_hooks(step.index)

    def fast_path_ended(self, steps: int, seconds: float, between: bool) -> None:
        """Note which step is over now: hooks are not counted in fast-path steps."""
        self._last_look = max(self._last_look, self._context.steps.index - 1)

    def ended(self) -> None:
        """Count all hooks for the last time."""
        self._count_hooks(max(self._last_look, self._context.steps.index - 1))

    def _count_hooks(self, step: int) -> None:
        """Count the hooks of all modules, parameters and optimizers after `step`; note where they were removed."""
        seen: set[tuple[int, str, CodeType]] = set()
        with private.disable_function_modes():
            for holder in self._objects_with_hooks():
                for attribute, methods in holder.attributes.items():
                    hooks = getattr(holder.thing, attribute, None)
                    if hooks:
                        self._update_counts(holder, attribute, methods, list(hooks.values()), step, seen)
        for key, one in self._counts.items():
            if key not in seen and one.ref() is not None:  # all of them were removed
                one.fell, one.count = one.fell or one.count > 0, 0

    def _objects_with_hooks(self) -> Iterator[_Holder]:
        """Yield the modules, parameters and optimizers that may have hooks."""
        known: set[int] = set()
        for root, model in self._modules.models():
            for path, module in model.named_modules():
                if id(module) in known:
                    continue
                known.add(id(module))
                full = functools.partial(self._modules.full_name, root)
                yield _Holder(module, functools.partial(full, path), _OF_MODULES)
                for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                    if tensor is not None and id(tensor) not in known:
                        known.add(id(tensor))
                        yield _Holder(tensor, functools.partial(full, f"{path}.{name}".lstrip(".")), _OF_TENSORS)
        for seen in list(self._context.steps.optimizers.values()):
            optimizer = seen.ref()
            if optimizer is None or id(optimizer) in known:
                continue
            known.add(id(optimizer))
            yield _Holder(optimizer, functools.partial(str, seen.name), _OF_OPTIMIZERS)
            for group in optimizer.param_groups:
                for tensor in group["params"]:
                    if id(tensor) not in known:
                        known.add(id(tensor))
                        yield _Holder(tensor, functools.partial(self._context.names.of, tensor), _OF_TENSORS)

    def _update_counts(
        self,
        holder: _Holder,
        attribute: str,
        methods: tuple[str, ...],
        hooks: list[object],
        step: int,
        seen: set[tuple[int, str, CodeType]],
    ) -> None:
        """Count the hooks of one object in one attribute, by code, and note whether the numbers grew since the last
        look.

        :param seen: receives the keys of the counts that were updated.
        """
        coded = [(code, hook) for hook in hooks if (code := code_of(hook)) is not None]
        for code, count in Counter(code for code, _ in coded).items():
            key = id(holder.thing), attribute, code
            seen.add(key)
            one = self._counts.get(key)
            if one is None or one.ref() is not holder.thing:
                if len(self._counts) < MAX_COUNTED:
                    self._counts[key] = _HookCount(_reference(holder.thing), "", methods, code, count)
                continue
            if count > one.count:
                one.growths += 1
                one.first = one.first if one.growths > 1 else step
                one.last = step
                mine = [hook for own, hook in coded if own == code]
                one.varies = one.varies or (count > 1 and _hold_different_tensors(mine[-1], mine[-2]))
                if one.piles_up or one.growths == thresholds.HOOK_COUNT_MIN_GROWTHS:
                    one.name = holder.name()
                    one.site = registered_at(self._frames, mine[-1], methods)
            one.fell = one.fell or count < one.count
            one.count = count

    def records(self) -> tuple[HooksPileUp, ...]:
        """Return a record of each line and function whose hooks pile up."""
        groups: dict[Any, list[_HookCount]] = {}
        for one in self._counts.values():
            if one.piles_up and one.site is not None:
                groups.setdefault((one.site, one.code, one.methods), []).append(one)
        return tuple(
            HooksPileUp(
                tuple(one.name for one in mine),
                methods[0],
                code.co_qualname if hasattr(code, "co_qualname") else code.co_name,
                max(one.count for one in mine),
                min(one.first for one in mine),
                max(one.last for one in mine),
                any(one.varies for one in mine),
                site,
            )
            for (site, code, methods), mine in groups.items()
        )


def code_of(hook: object) -> CodeType | None:
    """Return the code of a hook; ``None`` if it has none, or if the hook is backprobe's."""
    code = code_objects.code_of(hook)
    return code if code is not None and not code.co_filename.startswith(_OWN_FOLDER) else None


def _reference(thing: object) -> weakref.ref[Any]:
    """Return a weak reference to a tensor or another object."""
    return private.tensor_ref(thing) if isinstance(thing, torch.Tensor) else weakref.ref(thing)


def _bound_values(hook: object) -> list[object]:
    """Return the values that a hook is bound to: its closure, its defaults and the arguments of a partial function."""
    if isinstance(hook, functools.partial):
        return [*hook.args, *hook.keywords.values(), *_bound_values(hook.func)]
    function = getattr(hook, "__func__", hook)
    found = list(getattr(function, "__defaults__", None) or ())
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # empty
            continue
    return [*found, *vars(hook).values()] if isinstance(hook, nn.Module) else found


def _hold_different_tensors(one: object, other: object) -> bool:
    """Return whether two hooks hold different tensors, such as the masks of two rounds of pruning."""
    pairs = zip(_bound_values(one), _bound_values(other), strict=False)
    return any(isinstance(a, torch.Tensor) and a is not b for a, b in pairs)
