"""Detects learning rates that are zero, or have become zero, for a large part of a run, and rates that are raised."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from ... import thresholds
from ...records import LoadedRate, NegativeRate, RaisedRate, Site, ZeroRate
from ...source.assignments import key_given, scheduler_made
from ...source.calls import calls_of_method
from ...source.definitions import exits_of
from ...source.frames import variables
from ...torch_internals import private
from ...torch_internals.optimizers import parameters_of
from ..schedule.rate_history import RateHistory
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum numbers of optimizers and groups, and of elements of a weight that is kept.
MAX_OPTIMIZERS, MAX_GROUPS, MAX_ELEMENTS = 20, 100, 65536


@dataclass
class _Group:
    """The learning rate of a parameter group.

    :ivar since: the step from which on it is zero; ``None`` if it is not.
    """

    highest: float = 0.0
    rate: float = 0.0
    since: int | None = None


@dataclass
class _NegativeRates:
    """The steps in which a group that has gradients, and is not maximized, has a rate below zero."""

    step: int
    steps: int = 0
    groups: int = 0
    lowest: float = 0.0


@dataclass
class _OptimizerRates:
    """The learning rates of an optimizer.

    :ivar first, last: the first and the last step in which it was checked.
    :ivar checks: the number of checks in a row in which all rates were zero.
    :ivar kept: a weight and its values when all rates were found to be zero.
    :ivar given, begin: the rate that the optimizer was made with, and that with which its schedule began, if it has one
        group; ``lowest``: the lowest of its rates.
    :ivar history: the rates so far; ``None`` if it has a scheduler of torch, whose tracker keeps them.
    :ivar scheduler: the class of its scheduler; ``codes``: the user's functions that give the factors of the rates.
    """

    name: str
    ref: weakref.ref[torch.optim.Optimizer]
    first: int
    last: int = 0
    checks: int = 0
    groups: list[_Group] = field(default_factory=list)
    kept: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None
    scheduler: str = ""
    codes: tuple[CodeType, ...] = ()
    given: float = 0.0
    begin: float = 0.0
    lowest: float = math.inf
    history: RateHistory | None = None
    negative: _NegativeRates | None = None


class LearningRateTracker(Tracker):
    """Tracker of the steps from which on the learning rates of an optimizer are zero."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._states: dict[int, _OptimizerRates] = {}

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Check the learning rates of an optimizer that has stepped."""
        self._check_rates(optimizer, self._context.steps.index)

    def fast_path_optimizer_stepped(self, optimizer: torch.optim.Optimizer, seq: int) -> None:
        """Check the learning rates of an optimizer that stepped in a fast-path step."""
        self._check_rates(optimizer, max(0, self._context.steps.index - 1))

    def _check_rates(self, optimizer: object, step: int) -> None:
        """Note the learning rates of an optimizer in `step`: since when they are zero, and whether one is negative.

        When all are zero, keep a weight to see whether it still changes, and search for the scheduler.
        """
        state = self._states.get(id(optimizer))
        if state is None or state.ref() is not optimizer:
            if len(self._states) >= MAX_OPTIMIZERS:
                return
            state = _OptimizerRates(type(optimizer).__name__, weakref.ref(optimizer), step)
            state.given, state.begin = _first_rates(optimizer)
            state.history = None if _is_scheduled(optimizer) else RateHistory()
            self._states[id(optimizer)] = state
        rates = _rates(optimizer)
        if min(rates, default=0.0) < 0:
            self._count_negative(state, optimizer, rates, step)
            rates = []
        state.last = step
        if state.history is not None and rates:
            if not state.history.base:
                state.history.begin(optimizer, max(rates))
            state.history.note(step, max(rates))
        state.lowest = min(state.lowest, *rates, math.inf)
        for group, rate in zip(_grown_to(state.groups, len(rates)), rates, strict=False):
            group.highest, group.rate = max(group.highest, rate), rate
            if abs(rate) > thresholds.ZERO_RATE_SHARE * group.highest:
                group.since = None
            elif group.since is None:
                group.since = step
        if not rates or any(group.since is None for group in state.groups):
            state.checks, state.kept = 0, None
            return
        state.checks += 1
        if state.checks == 1:
            state.kept = self._smallest_weight(optimizer)
        elif state.checks == thresholds.ZERO_RATE_CHECKS_BEFORE_SEARCH:
            self._find_scheduler(state, optimizer)

    def _count_negative(self, state: _OptimizerRates, optimizer: Any, rates: list[float], step: int) -> None:
        """Count a step in which a group follows its gradients uphill, and find the scheduler in the first one."""
        pairs = zip(optimizer.param_groups, rates, strict=False)
        climbing = [rate for group, rate in pairs if rate < 0 and _has_gradients_to_minimize(group)]
        if not climbing:
            return
        if state.negative is None:
            state.negative = _NegativeRates(step)
            self._find_scheduler(state, optimizer)
        seen = state.negative
        seen.steps, seen.lowest = seen.steps + 1, min(seen.lowest, *climbing)
        seen.groups = max(seen.groups, len(climbing))

    def _smallest_weight(
        self, optimizer: torch.optim.Optimizer
    ) -> tuple[weakref.ref[torch.Tensor], torch.Tensor] | None:
        """Return the smallest weight that has a gradient, with a copy of its values; ``None`` if there is none."""
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            weights = [p for p in parameters_of(optimizer) if _has_plain_gradient(p)]
            least = min(weights, key=torch.Tensor.numel, default=None)
            return None if least is None else (private.tensor_ref(least), least.detach().clone())

    def _find_scheduler(self, state: _OptimizerRates, optimizer: torch.optim.Optimizer) -> None:
        """Find the scheduler of `optimizer` among the variables of the user's functions that run, and note its class
        and the functions that give its factors.
        """
        frames = self._context.frames
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frames.is_user(frame.f_code):
                for value in _values_in_scope(frame):
                    if isinstance(value, torch.optim.lr_scheduler.LRScheduler) and value.optimizer is optimizer:
                        state.scheduler = type(value).__name__
                        functions = getattr(value, "lr_lambdas", ())
                        codes = (getattr(one, "__code__", None) for one in functions)
                        state.codes = tuple({code for code in codes if code is not None and frames.is_user(code)})
                        return
            frame = frame.f_back

    def records(self) -> tuple[ZeroRate | LoadedRate | NegativeRate | RaisedRate, ...]:
        """Return records of rates that are zero, negative, raised, or come from a loaded state."""
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            return (
                *self._zero_rate_records(),
                *self._loaded_rate_records(),
                *self._negative_rate_records(),
                *self._raised_rate_records(),
            )

    def _negative_rate_records(self) -> Iterator[NegativeRate]:
        """Yield a record of each optimizer that had a rate below zero."""
        frames = self._context.frames
        for by, state in self._states.items():
            if (one := state.negative) is None:
                continue
            exits = exits_of(state.codes[0], only_subtracting=True) if len(state.codes) == 1 else []
            seen = self._context.steps.optimizers.get(by)
            made = frames.site(seen.spot) if seen is not None and seen.name == state.name else None
            scheduled = scheduler_made(frames, state.scheduler) or key_given(frames, "lr")
            given: Site | None = exits[0] if exits else None
            counts = one.step, one.steps, one.groups, len(state.groups) or one.groups
            highest = max((group.highest for group in state.groups), default=0.0)
            rates = one.lowest, highest
            yield NegativeRate(state.name, *counts, *rates, state.scheduler, given, len(exits), scheduled, made)

    def _loaded_rate_records(self) -> Iterator[LoadedRate]:
        """Yield a record of each optimizer with a constant rate that neither the script nor a scheduler gave it."""
        frames = self._context.frames
        for by, state in self._states.items():
            seen = self._context.steps.optimizers.get(by)
            highest = max((one.highest for one in state.groups), default=0.0)
            if not state.begin or state.lowest != highest or seen is None or seen.name != state.name:
                continue
            lines = [one.site for one in calls_of_method(frames, "load_state_dict") if "opt" in one.site.text.lower()]
            loaded = lines[0] if len(lines) == 1 else None
            rates = state.given, highest, state.begin
            steps = state.last - state.first + 1
            yield LoadedRate(state.name, *rates, state.first, steps, loaded, frames.site(seen.spot))

    def _raised_rate_records(self) -> Iterator[RaisedRate]:
        """Yield a record of each optimizer without a scheduler whose rate rose above the one that it began with."""
        frames = self._context.frames
        for by, state in self._states.items():
            seen = self._context.steps.optimizers.get(by)
            made = frames.site(seen.spot) if seen is not None and seen.name == state.name else None
            raised = state.history.record(state.name, key_given(frames, "lr"), made) if state.history else None
            if raised is not None:
                yield raised

    def _zero_rate_records(self) -> Iterator[ZeroRate]:
        """Yield a record of each optimizer whose rates were zero for a large part of its steps, to their end."""
        frames = self._context.frames
        for by, state in self._states.items():
            zero = [group for group in state.groups if group.since is not None]
            seen = self._context.steps.optimizers.get(by)
            if not zero or (len(zero) < len(state.groups) and not any(group.highest for group in zero)):
                continue  # a part that is frozen by a rate of zero
            since = max(group.since or 0 for group in zero)
            steps, total = state.last - since + 1, state.last - state.first + 1
            if steps < thresholds.ZERO_RATE_MIN_STEPS or steps < thresholds.ZERO_RATE_MIN_SHARE * total:
                continue
            exits = exits_of(state.codes[0]) if len(state.codes) == 1 else []
            scheduled = scheduler_made(frames, state.scheduler) or key_given(frames, "lr")
            made = frames.site(seen.spot) if seen is not None and seen.name == state.name else None
            highest = max(group.highest for group in zero)
            counts = len(zero), len(state.groups), since, steps, total
            details = zero[0].rate, highest, _is_unchanged(state), state.scheduler
            given = exits[0] if exits else None
            yield ZeroRate(state.name, *counts, *details, given, len(exits), scheduled, made)


def _first_rates(optimizer: torch.optim.Optimizer) -> tuple[float, float]:
    """Return the rate that an optimizer was made with, and that with which its schedule began.

    Both are 0 if it has no schedule, or several groups.
    """
    groups = optimizer.param_groups
    given, begin = optimizer.defaults.get("lr"), groups[0].get("initial_lr") if len(groups) == 1 else None
    if isinstance(given, (int, float)) and isinstance(begin, (int, float)):
        return float(given), float(begin)
    return 0.0, 0.0


def _is_scheduled(optimizer: Any) -> bool:
    """Return whether a scheduler of torch was made for an optimizer."""
    return any("initial_lr" in group for group in optimizer.param_groups[:MAX_GROUPS])


def _rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """Return the learning rates of the groups; empty if one is unknown, or on an accelerator."""
    found = []
    for group in optimizer.param_groups[:MAX_GROUPS]:
        rate = group.get("lr")
        if isinstance(rate, torch.Tensor):
            if not rate.is_cpu or rate.numel() != 1 or private.is_unsafe_to_read(rate):
                return []
            rate = rate.item()
        if not isinstance(rate, (int, float)):
            return []
        found.append(float(rate))
    return found


def _has_gradients_to_minimize(group: dict[str, Any]) -> bool:
    """Return whether a parameter group has gradients and is not maximized."""
    return not group.get("maximize") and any(p.grad is not None for p in group["params"])


def _grown_to(groups: list[_Group], count: int) -> list[_Group]:
    """Return `groups` after growing it to `count` elements."""
    groups += [_Group() for _ in range(count - len(groups))]
    return groups


def _values_in_scope(frame: FrameType) -> Iterable[object]:
    """Yield the variables of a function and of its module, and the attributes of its object."""
    local = variables(frame)
    yield from local.values()
    yield from list(getattr(local.get("self"), "__dict__", {}).values())
    yield from list(frame.f_globals.values())


def _has_plain_gradient(tensor: torch.Tensor) -> bool:
    """Return whether a weight has a gradient, and values that can be read and kept."""
    return private.is_readable(tensor) and tensor.grad is not None and 0 < tensor.numel() <= MAX_ELEMENTS


def _is_unchanged(state: _OptimizerRates) -> bool | None:
    """Return whether the kept weight is still the same; ``None`` if there is none, or if it is on an accelerator."""
    if state.kept is None:
        return None
    weight, before = state.kept[0](), state.kept[1]
    if weight is None or not weight.is_cpu or weight.shape != before.shape or private.local(weight) is not weight:
        return None
    return bool(torch.equal(weight.detach(), before))
