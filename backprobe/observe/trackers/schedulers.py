"""Tracks schedulers of learning rates: who steps them, and the rates that their optimizers have."""

from __future__ import annotations

import statistics
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import is_not
from types import FrameType
from typing import Any

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

from ... import thresholds
from ...records import PlateauMetric, ScheduleOfOther, ScheduleRestarted, ScheduleSeen, Site
from ...source.calls import lines_giving
from ...source.frames import CodeLocation, variables
from ...source.schedules import (
    direction_of_names,
    is_step_call,
    loop_of_period,
    may_be_stepped,
    metric_direction,
    mode_given_at,
    names_scheduler,
    returned_at,
)
from ...torch_internals import private, schedulers
from ...torch_internals.optimizers import parameters_of
from ...torch_internals.references import IdentityMap
from ..schedule.rate_history import RateHistory
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .metric_names import name_of_metric

#: The most schedulers and optimizers that are followed, and groups, parameters and metrics of one.
MAX_SCHEDULERS, MAX_OPTIMIZERS, MAX_GROUPS, MAX_PARAMETERS, MAX_METRICS = 64, 64, 8, 2000, 5000
#: Steps of an optimizer, counted by powers of two, in which its line is looked up.
STEPS_WITH_LOOKUP = frozenset((1, 2, 16, 128))
#: Maximum number of frames of schedulers that are passed on the way to their caller.
MAX_FRAMES = 12
#: Arguments of the Trainer's settings that choose a scheduler.
CHOOSES = ("lr_scheduler_type",)
#: Arguments that give the length of the warm-up to a library.
WARMS_UP = ("warmup_steps", "warmup_ratio", "num_warmup_steps")
#: Methods in which a scheduler makes no step.
CONSTRUCTS, LOADS = "__init__", "load_state_dict"


@dataclass
class _Optimizer:
    """An optimizer.

    :ivar rates: those of its groups when it stepped last; empty if one of them is no number. ``changes``: how often
        they were others than in the step before.
    :ivar first, rate, highest: the highest of them when it stepped first and last, and in any step.
    :ivar low_since: the step from which on they are low.
    :ivar spots: the lines that step it. ``history``: its rates so far.
    """

    name: str
    ref: weakref.ref[torch.optim.Optimizer]
    refs: dict[int, weakref.ref[torch.Tensor]]
    is_reported: bool
    made: CodeLocation | None
    steps: int = 0
    rates: list[Any] = field(default_factory=list)
    changes: int = 0
    first: float = 0.0
    rate: float = 0.0
    highest: float = 0.0
    low_since: int | None = None
    spots: set[CodeLocation] = field(default_factory=set)
    history: RateHistory = field(default_factory=RateHistory)


@dataclass
class _Loaded:
    """The loaded state of an optimizer: its rate, the rate before any schedule, and the steps that it counts."""

    rate: float
    begin: float
    done: int = 0


@dataclass
class _Scheduler:
    """A scheduler.

    :ivar at, changes, state_steps, groups: of its optimizer when it was made: steps, changes of rates, the steps that
        its state counts, and the identity of its groups, which are others after a load.
    :ivar idle: calls since the optimizer stepped last; ``others``: by optimizer, its steps and changes at the first.
    :ivar loaded: what the optimizer was loaded with. ``restarted``: the scheduler began at 0 nevertheless.
    :ivar stepped, first_step: the line and the step in which it was stepped first.
    :ivar metric_name: the name by which the first metric was looked up, if a caller has one.
    """

    name: str
    optimizer: _Optimizer
    made: CodeLocation | None
    has_own_step: bool
    at: int
    changes: int
    number: int
    state_steps: float | None
    groups: int
    period: int = 0
    length: int = 0
    base: float = 0.0
    warmup: int = 0
    planned: int = 0
    mode: str = ""
    calls: int = 0
    stepped: CodeLocation | None = None
    last_steps: int = 0
    idle: int = 0
    others: dict[int, tuple[int, int]] = field(default_factory=dict)
    loaded: _Loaded | None = None
    restarted: bool = False
    first_step: int = 0
    metrics: list[float] = field(default_factory=list)
    metric_name: str = ""


class SchedulerTracker(Tracker):
    """Tracker of schedulers. Steps of optimizers are followed once there is a scheduler."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without schedulers; steps of optimizers are followed once there is one."""
        self._context, self._frames = context, context.frames
        self._scheduler_states: IdentityMap[_Scheduler] = IdentityMap()
        self._schedulers: list[_Scheduler] = []
        self._optimizer_states: IdentityMap[_Optimizer] = IdentityMap()
        self._optimizers: list[_Optimizer] = []
        self._hooks = context.step_hooks(self, after=self._after_step)
        self._thread = threading.get_ident()
        context.restorers.append(self.observing_pauses)

    def observing_begins(self) -> None:
        """Listen to calls of schedulers, and to optimizer steps if there are schedulers already."""
        self._thread = threading.get_ident()
        schedulers.listen(self)
        if self._schedulers:
            self._hooks.attach()

    def observing_pauses(self) -> None:
        """Stop listening to calls of schedulers."""
        schedulers.unlisten(self)

    # Steps of optimizers: their number is needed in fast-path steps, too

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step of `optimizer`, and note its learning rates if they changed. Also called in the fast path."""
        state = self._optimizer_states.get(optimizer) or self._note_optimizer(optimizer)
        if state is None:
            return
        state.steps += 1
        if state.steps in STEPS_WITH_LOOKUP and (spot := self._frames.spot(sys._getframe(1))) is not None:
            state.spots.add(spot)
        rates = [group["lr"] for group in optimizer.param_groups[:MAX_GROUPS]]
        if len(rates) != len(state.rates) or any(map(is_not, rates, state.rates)):
            self._note_rates(state, rates)

    def _note_rates(self, state: _Optimizer, rates: list[Any]) -> None:
        """Note the learning rates of an optimizer's groups after a step: that they changed, the highest, and since when
        low.
        """
        if not all(isinstance(rate, (int, float)) for rate in rates):
            state.rates, state.changes = [], state.changes + 1
            return
        if state.steps > 1 and rates != state.rates:
            state.changes += 1
        was, index = state.rate, self._context.steps.index
        state.rates, state.rate = rates, float(max(rates))
        if state.steps == 1:
            state.first = state.rate
            if (optimizer := state.ref()) is not None:
                state.history.begin(optimizer, state.rate)
        else:
            state.history.note(index - 1, was)
        state.history.note(index, state.rate)
        state.highest = max(state.highest, state.rate)
        if state.rate >= thresholds.SCHEDULE_LOW_RATE_SHARE * state.highest:
            state.low_since = None
        elif state.low_since is None:
            state.low_since = self._context.steps.index

    def _note_optimizer(self, optimizer: object) -> _Optimizer | None:
        """Begin to follow an optimizer, and return its entry; ``None`` after ``MAX_OPTIMIZERS``."""
        if len(self._optimizers) >= MAX_OPTIMIZERS:
            return None
        held = parameters_of(optimizer)[:MAX_PARAMETERS]
        refs: dict[int, weakref.ref[torch.Tensor]] = {
            id(p): private.tensor_ref(p) for p in held if isinstance(p, torch.Tensor)
        }
        seen = self._context.steps.optimizers.get(id(optimizer))
        made = seen.spot if seen is not None and seen.ref() is optimizer else None
        reported = schedulers.reports_steps(optimizer)
        state = _Optimizer(type(optimizer).__name__, weakref.ref(optimizer), refs, reported, made)
        self._optimizer_states[optimizer] = state
        self._optimizers.append(state)
        return state

    # Calls of schedulers

    def scheduler_called(
        self, scheduler: torch.optim.lr_scheduler.LRScheduler, metric: float | None, frame: FrameType
    ) -> None:
        """Note a call of a scheduler: that it is made, or that it steps. Called by ``schedulers`` of
        ``torch_internals``.

        :param metric: the number that ``ReduceLROnPlateau.step`` was given.
        :param frame: the frame of the scheduler's method.
        """
        if threading.get_ident() != self._thread:
            return
        try:
            known = self._scheduler_states.get(scheduler)
            if known is None or not known.calls:
                known = self._note_first_call(scheduler, known, frame)
                if known is not None and metric is not None:
                    self._note_metric_name(known, metric, frame)
            if known is not None:
                self._count_call(known, metric)
        except Exception as error:
            self._context.events.fault(self, error)

    def _note_first_call(
        self, scheduler: torch.optim.lr_scheduler.LRScheduler, known: _Scheduler | None, frame: FrameType
    ) -> _Scheduler | None:
        """Note a scheduler that is made, or that steps for the first time; return its entry only if it steps."""
        caller, method, outer = _calling_frame(frame)
        if known is None:
            known = self._note_scheduler(scheduler, caller if method == CONSTRUCTS else None)
        if known is None or method == LOADS:
            return None
        if method == CONSTRUCTS:
            if outer is not None and outer is not scheduler:
                self._note_parent(outer, caller)
            return None
        known.stepped, known.first_step = self._frames.spot(caller), self._context.steps.index
        with private.measuring():
            self._check_restart(known, scheduler)
        return known

    def _note_metric_name(self, known: _Scheduler, metric: float, frame: FrameType) -> None:
        """Note the name by which a caller looked up the first metric of a plateau scheduler."""
        caller, _, _ = _calling_frame(frame)
        with private.measuring():
            known.metric_name = name_of_metric(caller, metric, self._frames)

    def _note_scheduler(
        self, scheduler: torch.optim.lr_scheduler.LRScheduler, caller: FrameType | None
    ) -> _Scheduler | None:
        """Begin to follow a scheduler and its optimizer; return its entry, or ``None`` if there are too many.

        :param caller: the user's frame that makes it; ``None`` if that was not observed.
        """
        optimizer = _unwrapped(scheduler.optimizer)
        if len(self._schedulers) >= MAX_SCHEDULERS:
            return None
        state = self._optimizer_states.get(optimizer) or self._note_optimizer(optimizer)
        if state is None:
            return None
        self._hooks.attach()
        with private.measuring():
            done = schedulers.steps_of_state(optimizer)
        known = _Scheduler(
            type(scheduler).__name__,
            state,
            self._frames.spot(caller) if caller is not None else None,
            schedulers.has_own_step(scheduler),
            *(state.steps, state.changes, len(self._schedulers), done, id(optimizer.param_groups)),
            period=_cosine_period(scheduler),
            length=_total_steps(scheduler),
            base=_base_rate(scheduler),
            warmup=_given_number(scheduler, "num_warmup_steps"),
            planned=_given_number(scheduler, "num_training_steps"),
            mode=str(getattr(scheduler, "mode", "")) if isinstance(scheduler, ReduceLROnPlateau) else "",
            last_steps=state.steps,
        )
        if caller is not None:
            known.loaded = self._loaded_before(scheduler, known)
        self._scheduler_states[scheduler] = known
        self._schedulers.append(known)
        return known

    def _note_parent(self, outer: object, caller: FrameType | None) -> None:
        """Note the line that makes a scheduler which holds others as the place where these were made."""
        spot = self._frames.spot(caller)
        for child in schedulers.children_of(outer):
            known = self._scheduler_states.get(child)
            if known is not None:
                known.made = spot

    def _loaded_before(self, scheduler: torch.optim.lr_scheduler.LRScheduler, known: _Scheduler) -> _Loaded | None:
        """Return the rate that the optimizer was loaded with before the scheduler was made, if it was.

        A group that was under a schedule before has the rate with which that began.
        """
        seen = self._context.steps.optimizers.get(id(scheduler.optimizer))
        is_used = known.optimizer.steps or (seen is not None and seen.last_counter >= 0)
        if is_used or any(one.optimizer is known.optimizer for one in self._schedulers):
            return None
        group = scheduler.optimizer.param_groups[0]
        rate, begin = group["lr"], group.get("initial_lr")
        if not (isinstance(rate, float) and isinstance(begin, (int, float))) or rate == begin:
            return None
        if schedulers.sets_first_rate(scheduler) and not scheduler.optimizer.state:
            return None  # which is the rate that it has set itself
        return _Loaded(rate, float(begin), int(known.state_steps or 0)) if scheduler.last_epoch == -1 else None

    def _check_restart(self, known: _Scheduler, scheduler: torch.optim.lr_scheduler.LRScheduler) -> None:
        """Note whether the optimizer continues from a loaded state, and the scheduler begins at 0."""
        if scheduler.last_epoch != 0 or isinstance(scheduler, ReduceLROnPlateau):
            return
        group, last = scheduler.optimizer.param_groups[0], scheduler.get_last_lr()
        if known.loaded is None:
            rate, begin = group["lr"], group.get("initial_lr")
            if not (isinstance(rate, float) and isinstance(begin, (int, float)) and isinstance(last[0], float)):
                return
            if rate == last[0] or known.groups == id(_unwrapped(scheduler.optimizer).param_groups):
                return  # nothing was loaded
            counted = schedulers.steps_of_state(_unwrapped(scheduler.optimizer)) or 0
            done = counted - (known.state_steps or 0) - (known.optimizer.steps - known.at) if counted else 0
            known.loaded = _Loaded(rate, float(begin), int(done))
            known.optimizer.highest = rate  # a new run begins
        known.restarted = True

    def _count_call(self, known: _Scheduler, metric: float | None) -> None:
        """Count a step of a scheduler, its metric, and how many such steps it made since its optimizer stepped last."""
        known.calls += 1
        own = known.optimizer
        if own.steps != known.last_steps:
            known.idle, known.last_steps = 0, own.steps
        else:
            if not known.idle:
                known.others = {id(one): (one.steps, one.changes) for one in self._optimizers if one is not own}
            known.idle += 1
        if metric is not None and len(known.metrics) < MAX_METRICS:
            known.metrics.append(metric)

    # What is known

    def records(self) -> Iterator[object]:
        """Yield the records of each scheduler: its schedule, and signs that it drives another optimizer or
        restarted. Then those of optimizers whose rate was raised.
        """
        for known in self._schedulers:
            yield self._schedule_record(known)
            yield from self._other_optimizer_records(known)
            if len(known.metrics) > 1 and known.optimizer.rates:
                yield self._plateau_record(known)
            if known.restarted and known.loaded is not None and known.optimizer.rates:
                yield self._restart_record(known, known.loaded)
        for own in self._optimizers:
            raised = own.history.record(own.name, None, self._frames.site(own.made))
            if raised is not None:
                yield raised

    def _schedule_record(self, known: _Scheduler) -> ScheduleSeen:
        """Return the record of a scheduler's calls and of the rates that its optimizer had."""
        own, site = known.optimizer, self._frames.site
        made, stepped = site(known.made), site(known.stepped)
        steps = own.steps - known.at
        never = not known.calls and made is not None and steps >= thresholds.SCHEDULE_MIN_STEPS_WITHOUT
        turned = known.period and known.calls > known.period and made is not None and stepped is not None
        return ScheduleSeen(
            *(known.name, own.name, known.calls, steps),
            *(own.first, own.rate, own.highest, own.low_since if own.rates else None),
            known.period,
            loop_of_period(self._user_files(), made, stepped) if turned and made and stepped else None,
            self._has_ended_normally(),
            self._may_be_stepped(known, made) if never and made is not None else True,
            *(made, stepped, site(own.made)),
            length=known.length,
            base=known.base,
            returned=returned_at(made) if made is not None and not (stepped and is_step_call(stepped)) else None,
            warmup=known.warmup,
            planned=known.planned,
            warmup_given=self._line_for_library(made, WARMS_UP) if known.warmup and made is not None else None,
        )

    def _has_ended_normally(self) -> bool:
        """Return whether the whole script was observed and ended without error, exit code or signal."""
        context = self._context
        return context.whole and context.raised is None and not context.code and context.signal is None

    def _may_be_stepped(self, known: _Scheduler, made: Site) -> bool:
        """Return whether a scheduler that was not stepped may have been meant to be, later or by someone else."""
        own = known.optimizer
        rivals = [one for one in self._schedulers if one.optimizer is own]
        if any(one.calls or one.has_own_step for one in rivals) or known is not rivals[-1]:
            return True
        if own.changes > known.changes or not own.rates:
            return True
        lines = [one for spot in own.spots if (one := self._frames.site(spot)) is not None]
        if not lines or not all(map(is_step_call, lines)):
            return True  # a library steps the optimizer
        spots = {spot for one in self._optimizers for spot in one.spots}
        steps = [one for spot in spots if (one := self._frames.site(spot)) is not None]
        return may_be_stepped(self._user_files(), made, steps)

    def _user_files(self) -> list[str]:
        """Return the user's files, also those that were imported and not reached."""
        imported = [getattr(one, "__file__", None) for one in list(sys.modules.values())]
        frames = self._frames
        mine = {name for name in imported if isinstance(name, str) and frames.is_users_file(name)}
        return sorted(mine | set(frames.users_files()))

    def _other_optimizer_records(self, known: _Scheduler) -> Iterator[ScheduleOfOther]:
        """Yield a record if another optimizer of the same parameters steps, whose rate the scheduler does not
        change.
        """
        own, site = known.optimizer, self._frames.site
        if known.idle < 2 or not own.is_reported:
            return
        for one in self._optimizers:
            steps, changes = known.others.get(id(one), (0, 0))
            is_same = any(one.refs.get(number) is ref for number, ref in own.refs.items())
            if (
                one is own
                or not is_same
                or one.changes != changes
                or one.steps - steps < thresholds.SCHEDULE_MIN_STEPS_WITHOUT
                or not one.rates
            ):
                continue
            counts = known.idle, own.steps, one.name, one.steps - steps, one.rate
            yield ScheduleOfOther(known.name, own.name, *counts, site(known.made), site(known.stepped), site(one.made))
            return

    def _plateau_record(self, known: _Scheduler) -> PlateauMetric:
        """Return the record of the metrics that a ``ReduceLROnPlateau`` was given."""
        found, own, stepped = known.metrics, known.optimizer, self._frames.site(known.stepped)
        best = min(found) if known.mode == "min" else max(found)
        last, made = statistics.median(found[-max(1, len(found) // 5) :]), self._frames.site(known.made)
        direction = metric_direction(stepped) if stepped is not None else ""
        return PlateauMetric(
            *(known.mode, len(found), found[0], last, min(found), max(found), found.index(best)),
            *(known.first_step, own.first, own.rate),
            direction or direction_of_names([known.metric_name]),
            *(made, stepped),
            name=known.metric_name,
            mode_given=mode_given_at(made) or self._line_for_library(made, CHOOSES) if made is not None else None,
        )

    def _line_for_library(self, made: Site, keywords: tuple[str, ...]) -> Site | None:
        """Return the only line that gives one of `keywords` to the library that makes a scheduler in a call at `made`.

        Return ``None`` if the script makes the scheduler.
        """
        given = [] if names_scheduler(made) else lines_giving(self._frames, keywords)
        return given[0] if len(given) == 1 else None

    def _restart_record(self, known: _Scheduler, loaded: _Loaded) -> ScheduleRestarted:
        """Return the record of a scheduler that began at 0 although its optimizer continues from a loaded state."""
        own, site = known.optimizer, self._frames.site
        highest = own.highest if own.steps else loaded.rate
        counts = loaded.done, loaded.rate, loaded.begin, highest, known.first_step
        return ScheduleRestarted(known.name, own.name, *counts, site(known.made), site(known.stepped))


def _calling_frame(frame: FrameType) -> tuple[FrameType | None, str, object]:
    """Return the frame that calls a scheduler, the method that it calls, and the scheduler.

    `frame` is that of a method of a scheduler, which another one may have called. ``CONSTRUCTS`` and ``LOADS`` are
    returned as the method if one of the schedulers is being constructed or loaded.
    """
    method, special, outer = "", "", None
    at: FrameType | None = frame
    for _ in range(MAX_FRAMES):
        if at is None:
            break
        code = at.f_code
        first = variables(at).get(code.co_varnames[0]) if code.co_argcount else None
        # A function that is given a scheduler is no method of it.
        is_method = isinstance(first, LRScheduler) and hasattr(type(first), code.co_name)
        if not is_method and not schedulers.is_code_of_schedulers(code):
            break
        method, outer = code.co_name, first if is_method else outer
        special = method if method in (CONSTRUCTS, LOADS) else special
        at = at.f_back
    return at, special or method, outer


def _unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer inside wrappers such as that of Accelerate."""
    for _ in range(4):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, torch.optim.Optimizer):
            break
        optimizer = inner
    return optimizer


def _cosine_period(scheduler: object) -> int:
    """Return ``T_max`` of a ``CosineAnnealingLR``; 0 for other schedulers."""
    period = getattr(scheduler, "T_max", 0) if isinstance(scheduler, CosineAnnealingLR) else 0
    return period if isinstance(period, int) and period > 0 else 0


def _total_steps(scheduler: torch.optim.lr_scheduler.LRScheduler) -> int:
    """Return the number of steps that a scheduler is made for; 0 if it has none."""
    names = ("total_steps", "T_max", "total_iters")
    numbers = (vars(scheduler).get(name) for name in names)
    return next((number for number in numbers if isinstance(number, int) and number > 0), 0)


def _base_rate(scheduler: torch.optim.lr_scheduler.LRScheduler) -> float:
    """Return the highest base learning rate of a scheduler; 0 if it has none."""
    rates = getattr(scheduler, "base_lrs", ())
    return max((float(rate) for rate in rates if isinstance(rate, (int, float))), default=0.0)


def _given_number(scheduler: torch.optim.lr_scheduler.LRScheduler, name: str) -> int:
    """Return the number `name` that the factor of a ``LambdaLR`` was made with (``functools.partial``); else 0."""
    factors = getattr(scheduler, "lr_lambdas", ())
    tables = [one.keywords for one in factors if isinstance(one, partial)] if isinstance(factors, list) else []
    numbers = [table.get(name) for table in tables]
    return max((number for number in numbers if isinstance(number, int)), default=0)
