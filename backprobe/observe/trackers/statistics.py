"""Measures statistics by layer about every tenth step, including unrecorded and fast-path steps.

Note [Which steps are measured]: a monitor has to see values over the whole run. So this tracker has optimizer hooks of
its own, whose cost in other steps is negligible. Each optimizer is measured at its own steps, so that two optimizers
that take turns are both measured. The time of a measurement counts as overhead, like all work of backprobe. If
measurements at the requested interval would take more than ``BUDGET_FRACTION`` of the overhead budget, the next one is
delayed, except for the first ``UNDELAYED_MEASUREMENTS``.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from array import array
from collections.abc import Mapping
from itertools import chain
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import optimizer as optim

from ...records import Measured, Step, Unseen
from ...records.statistics import OF
from ...torch_internals import private
from ..own_time import Begin
from ..schedule.settings import Settings
from ..statistics.accumulated import AccumulatedGradients, AccumulationState, InterceptionPolicy
from ..statistics.activations import Activations
from ..statistics.noise import NoiseScale
from ..statistics.numbers import COSTLY_INTERVAL, Found, Numbers
from ..statistics.parameters import Parameters, Spectra
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The fraction of the total overhead budget that statistics may use.
BUDGET_FRACTION = 0.5
#: Number of first measurements that are never delayed: short runs use the overhead that every run may have.
UNDELAYED_MEASUREMENTS = 20
#: Maximum number of measurements that are made earlier than the budget allows because a value may be an alarm.
MAX_HASTENED = 100
#: Maximum number of values per step, and number of internal errors after which nothing is measured any more.
MAX_VALUES_PER_STEP, MAX_FAULTS = 20_000, 20
#: The largest absolute value that is kept, about that of single precision.
MAX_ABSOLUTE_VALUE = 3e38
_clock, _compiling = time.perf_counter, private.compiling


class MeasurementSchedule:
    """Schedule of one optimizer's measurements."""

    def __init__(self, every: int, share: float | None) -> None:
        self._every, self._share = every, share
        #: The step of the next measurement, and the number of measurements so far.
        self.next = self.looks = 0
        self._cost = 0.0
        self._last: tuple[int, float] | None = None

    def due(self, step: int) -> bool:
        return step >= self.next

    def hasten(self) -> None:
        """Schedule the next measurement at the requested interval, whatever it costs."""
        if self._last is not None:
            self.next = min(self.next, self._last[0] + self._every)

    def measured(self, step: int, seconds: float) -> None:
        """Record that the measurement in `step` took `seconds`, and schedule the next one."""
        now = _clock()
        self.looks += 1
        self.next = step + self._every
        if self._last is not None and self._share is not None and step > self._last[0]:
            self._cost = seconds if not self._cost else self._cost + 0.3 * (min(seconds, 4 * self._cost) - self._cost)
            alone = max(now - self._last[1] - seconds, 1e-9) / (step - self._last[0])
            rest = math.ceil(self._cost / (self._share * alone))
            if rest > self._every and self.looks >= UNDELAYED_MEASUREMENTS:
                self.next = step + rest
        self._last = step, now


class MeasuredOptimizer(NamedTuple):
    """State of an optimizer: its name, measurement schedule, spectral norms, and interception of backward calls."""

    ref: Any
    title: str
    pace: MeasurementSchedule
    spectra: Spectra
    listening: InterceptionPolicy


class StatisticsTracker(Tracker):
    """Tracker that measures statistics, and passes on a ``Measured`` record for each measured step."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return settings.layer_stats > 0

    def __init__(self, context: TrackerContext) -> None:
        self._context, self._own = context, context.events.own
        settings = context.settings
        self._every = settings.layer_stats
        self._share = None if settings.budget is None else BUDGET_FRACTION * settings.budget
        #: Known optimizers by id.
        self._known: dict[int, MeasuredOptimizer] = {}
        #: The step before the next step in which an optimizer may be measured.
        self._soon = -1
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._on = False
        #: The measured step, its numbers, and the optimizers that are stepping, with the seconds spent before their
        #: steps.
        self._step: int | None = None
        self._numbers = Numbers()
        self._stepping: dict[int, tuple[Parameters, float]] = {}
        #: The measurement of module outputs if the next step is measured, and the seconds spent on it.
        self._ahead: Activations | None = None
        self._outputs = Activations(self._name_of, self._fault, self._own.begin, self._took)
        self._spent = 0.0
        self._accumulated = AccumulatedGradients(
            self._due, context.frames.spot, context.steps.losses.factor, self._fault, self._own.begin, self._took
        )
        self._noise = NoiseScale()
        #: The previously measured step, whose numbers an accelerator may still be computing.
        self._sent: tuple[int, Numbers] | None = None
        #: Names of values, by the quantities and layers that were measured.
        self._names: dict[tuple[tuple[str, ...], ...], tuple[str, ...]] = {}
        self._pid, self._thread = os.getpid(), get_ident()
        self._faults = self._dropped = 0
        #: Whether the next measurement is to be made early, and whether an optimizer is being measured; and how often
        #: an early measurement was requested.
        self._again = self._looking = False
        self._hastened = 0
        context.measure_with(self._look_again)

    # Attach and detach

    def attached(self) -> None:
        self._on, self._thread = True, get_ident()
        self._handles = self._handles or [
            optim.register_optimizer_step_pre_hook(self._before),
            optim.register_optimizer_step_post_hook(self._after),
        ]
        if not self._known:
            self._attach_ahead()

    def detached(self) -> None:
        self._on = False
        while self._handles:
            self._handles.pop().remove()
        self._detach_ahead()
        self._accumulated.detach()
        self._stepping.clear()
        if os.getpid() == self._pid:
            self._close()
            self._hand_on()

    def _attach_ahead(self) -> None:
        self._detach_ahead()
        self._ahead = self._outputs
        self._ahead.attach()
        self._accumulated.attach()

    def _detach_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.detach()
            self._ahead = None

    def _due(self) -> list[tuple[Any, int, bool]]:
        """Return the optimizers that are measured in this step and whose backward calls are intercepted.

        :returns: (optimizer, number of its measurements so far, whether the norm after the backward is taken).
        """
        step = self._context.steps.index
        if self._faults >= MAX_FAULTS or os.getpid() != self._pid:
            return []
        due = [(one.ref(), one) for one in self._known.values() if one.pace.due(step)]
        return [
            (optimizer, looks := one.pace.looks, one.listening.measures(looks))
            for optimizer, one in due
            if optimizer is not None and one.listening.intercepts(one.pace.looks)
        ]

    def _took(self, mark: Begin, before: float = 0.0) -> None:
        """Count the time since `mark` as overhead of the measurement, and `before` seconds before it."""
        begun, clocked, ran, stalled = mark
        self._spent += self._own.since((begun - before, clocked, ran - before, stalled))

    def _name_of(self, module: nn.Module) -> str | None:
        found = self._context.modules.root_and_path(module)
        return (self._context.modules.full_name(*found) or found[0].class_name) if found is not None else None

    def _fault(self, error: Exception) -> None:
        self._faults += 1
        self._context.events.faults.add(type(self).__name__, error)
        if self._faults >= MAX_FAULTS:
            self._detach_ahead()

    # Optimizer hooks

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if _compiling():
            return
        step = self._context.steps.index
        if step < self._soon and (early := self._known.get(id(optimizer))) is not None and early.ref() is optimizer:
            return
        if not self._on or self._faults >= MAX_FAULTS or os.getpid() != self._pid or get_ident() != self._thread:
            return
        if _captures():
            return
        mark = self._own.begin()
        try:
            known = self._known.get(id(optimizer))
            if known is None or known.ref() is not optimizer:
                self._known = {key: one for key, one in self._known.items() if one.ref() is not None}
                pace = MeasurementSchedule(self._every, self._share)
                known = MeasuredOptimizer(
                    weakref.ref(optimizer), self._title(optimizer), pace, Spectra(), InterceptionPolicy()
                )
                self._known[id(optimizer)] = known
            accumulation = self._accumulated.take(optimizer)
            if known.pace.due(step):
                if accumulation is not None:
                    with private.unseen():
                        known.listening.record_calls(accumulation.micro.calls, accumulation.is_touched(optimizer))
                closure = any(map(callable, (*args[1:], *kwargs.values())))
                self._begins(optimizer, step, known, None if closure else accumulation)
            self._plan()
            if any(one.pace.next == step + 1 for one in self._known.values()):
                self._attach_ahead()
        except Exception as error:
            self._fault(error)
        seconds = self._own.since(mark)
        if id(optimizer) in self._stepping:
            self._stepping[id(optimizer)] = self._stepping[id(optimizer)][0], seconds

    def _title(self, optimizer: object) -> str:
        """Return a name for an optimizer: its class, with a number if the name is taken."""
        name, taken = type(optimizer).__name__, {one.title for one in self._known.values()}
        names = [name, *(f"{name}#{i}" for i in range(2, 3 + len(taken)))]
        return next(one for one in names if one not in taken)

    def _begins(
        self,
        optimizer: torch.optim.Optimizer,
        step: int,
        known: MeasuredOptimizer,
        accumulation: AccumulationState | None,
    ) -> None:
        if step != self._step:
            self._close()
            self._step = step
            self._context.events.measurement_begins.emit(step)
            if self._ahead is not None:
                with private.measuring():
                    self._numbers = self._ahead.taken()
                self._detach_ahead()
        with private.measuring():
            mine = Parameters(optimizer, known.title, self._numbers, self._context.names.of, accumulation)
            self._stepping[id(optimizer)] = mine, 0.0
            mine.before(known.spectra if known.pace.looks % COSTLY_INTERVAL == 0 else None)

    def _after(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if _compiling():
            return
        if not self._stepping or id(optimizer) not in self._stepping or not self._on or os.getpid() != self._pid:
            return
        mark = self._own.begin()
        self._looking = True
        mine, before = self._stepping.pop(id(optimizer))
        pace = self._known[id(optimizer)].pace
        try:
            with private.measuring():
                mine.after()
                scale = self._context.steps.losses.scaler
                if scale is not None:
                    self._numbers.add("loss_scale", ["GradScaler"], [scale])
            if self._context.steps.index != self._step and not self._stepping:
                self._close()
        except Exception as error:
            self._fault(error)
        self._accumulated.take(optimizer)  # calls made by a closure
        spent, self._spent = self._spent, 0.0
        step = self._step if self._step is not None else pace.next
        pace.measured(step, before + spent + self._own.since(mark))
        if self._ahead is None and pace.next == step + 1:
            self._attach_ahead()
        self._looking = False
        self._plan()

    def _look_again(self) -> None:
        """Request the next measurement as early as the interval allows: a value is an alarm if it persists."""
        if self._hastened < MAX_HASTENED:
            self._again = True
            self._hastened += 1
            if not self._looking:
                self._plan()

    def _plan(self) -> None:
        """Publish the step of the next measurement, which must not take the fast path, as its loss is needed."""
        if self._again:
            self._again = False
            for one in self._known.values():
                one.pace.hasten()
        self._soon = min((self._next_measurement(by, one.pace) for by, one in self._known.items()), default=0) - 1
        self._context.measure_at(self._soon + 1)

    def _next_measurement(self, by: int, pace: MeasurementSchedule) -> int:
        """Return the step of an optimizer's next measurement.

        While the optimizer steps, this is the earliest possible step: the steps between may take the fast path.
        """
        return pace.next if by not in self._stepping or self._step is None else self._step + self._every

    def step_ended(self, step: Step) -> None:
        if step.index == self._step and not self._stepping and not _captures():
            self._close()

    # Results

    def _close(self) -> None:
        """End the measurement of the current step, and begin to copy its numbers."""
        step, numbers = self._step, self._numbers
        self._step, self._numbers = None, Numbers()
        if self._ahead is None:
            self._accumulated.detach()
        if step is None:
            return
        with private.measuring():
            numbers.send()
        self._hand_on()
        self._sent = step, numbers
        if numbers.there:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._sent is None:
            return
        (step, numbers), self._sent = self._sent, None
        with private.measuring():
            found = derived(numbers.read(), numbers.sizes, numbers.fan_in)
            self._noise.put(found)
            factors = found.get("clip_factor", {})
            for one in self._known.values():
                one.listening.found(factors.get(one.title, 1.0))
        if found:
            self._emit_measured(step, found)
        self._context.events.measurement_ended.emit(step)

    def _emit_measured(self, step: int, found: Found) -> None:
        keys = tuple([(quantity, *values) for quantity, values in found.items()])
        names = self._names.get(keys)
        if names is None:
            names = tuple(f"{quantity}{OF}{name}" for quantity, values in found.items() for name in values)
            self._dropped = max(self._dropped, len(names) - MAX_VALUES_PER_STEP)
            if len(self._names) > 100:
                self._names.clear()
            self._names[keys] = names = names[:MAX_VALUES_PER_STEP]
        values = array("f", chain.from_iterable(one.values() for one in found.values()))
        whole = sum(values)
        if whole - whole != 0.0:  # not finite, or beyond single precision
            each = chain.from_iterable(one.values() for one in found.values())
            values = array(
                "f", (min(max(v, -MAX_ABSOLUTE_VALUE), MAX_ABSOLUTE_VALUE) if v - v == 0.0 else v for v in each)
            )
        self._context.hand_on(Measured(step, names, values[:MAX_VALUES_PER_STEP]))

    def unseen(self) -> list[Unseen]:
        if self._dropped <= 0:
            return []
        return [Unseen("statistics", self._dropped, f"a step holds {MAX_VALUES_PER_STEP} of them", hides=False)]


def _captures() -> bool:
    """Return whether a CUDA graph is being captured: our operations would become part of it."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def derived(found: Found, sizes: Mapping[str, int], fan_in: Mapping[str, int]) -> Found:
    """Return `found` with the quantities that are derived from it."""
    weights, updates = found.get("weight_norm", {}), found.get("update_norm", {})
    roots = {name: math.sqrt(size) for name, size in sizes.items()}
    gains = {name: weights[name] * math.sqrt(sums) / roots[name] for name, sums in fan_in.items() if name in weights}
    rms = {
        f"{what}_rms": {name: length / roots[name] for name, length in found.get(f"{what}_norm", {}).items()}
        for what in ("weight", "grad", "update")
    }
    ratios = {name: length / weight for name, length in updates.items() if (weight := weights.get(name))}
    more = {"weight_gain": gains, **rms, "update_ratio": ratios}
    return found | {quantity: values for quantity, values in more.items() if values}
