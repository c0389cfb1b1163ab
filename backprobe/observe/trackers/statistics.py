"""Measures statistics by layer about every tenth step, including unrecorded and fast-path steps.

Note [Which steps are measured]: a monitor has to see values over the whole run. So this tracker has optimizer hooks of
its own, whose cost in other steps is negligible. Each optimizer is measured at its own steps, so that two optimizers
that take turns are both measured. The time of a measurement counts as overhead, like all work of backprobe. If
measurements at the requested interval would take more than ``MAX_BUDGET_SHARE`` of the overhead budget, the next one is
delayed, except for the first ``MAX_UNDELAYED_MEASUREMENTS``.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from array import array
from collections.abc import Callable, Mapping
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

#: Maximum share of the total overhead budget that statistics may use.
MAX_BUDGET_SHARE = 0.5
#: Maximum number of first measurements that are never delayed: short runs use the overhead that every run may have.
MAX_UNDELAYED_MEASUREMENTS = 20
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
        """Schedule the first measurement for step 0.

        :param every: the requested number of steps between measurements.
        :param share: the share of the script's time that measurements may take; ``None``: no limit.
        """
        self._interval, self._share = every, share
        #: The step of the next measurement, and the number of measurements so far.
        self.next = self.measurement_count = 0
        self._cost = 0.0
        self._last: tuple[int, float] | None = None

    def due(self, step: int) -> bool:
        """Return whether the optimizer is to be measured in `step`."""
        return step >= self.next

    def measure_early(self) -> None:
        """Schedule the next measurement at the requested interval, whatever it costs."""
        if self._last is not None:
            self.next = min(self.next, self._last[0] + self._interval)

    def measured(self, step: int, seconds: float) -> None:
        """Record that the measurement in `step` took `seconds`, and schedule the next one."""
        now = _clock()
        self.measurement_count += 1
        self.next = step + self._interval
        if self._last is not None and self._share is not None and step > self._last[0]:
            self._cost = seconds if not self._cost else self._cost + 0.3 * (min(seconds, 4 * self._cost) - self._cost)
            alone = max(now - self._last[1] - seconds, 1e-9) / (step - self._last[0])
            rest = math.ceil(self._cost / (self._share * alone))
            if rest > self._interval and self.measurement_count >= MAX_UNDELAYED_MEASUREMENTS:
                self.next = step + rest
        self._last = step, now


class MeasuredOptimizer(NamedTuple):
    """State of an optimizer: its name, measurement schedule, spectral norms, and interception of backward calls."""

    ref: Callable[[], torch.optim.Optimizer | None]
    title: str
    schedule: MeasurementSchedule
    spectra: Spectra
    interception: InterceptionPolicy


class StatisticsTracker(Tracker):
    """Tracker that measures statistics, and passes on a ``Measured`` record for each measured step."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether statistics by layer were requested."""
        return settings.layer_stats > 0

    def __init__(self, context: TrackerContext) -> None:
        """Start without optimizers; the interval and the share of time come from the settings."""
        self._context, self._own = context, context.events.own
        settings = context.settings
        self._interval = settings.layer_stats
        self._share = None if settings.budget is None else MAX_BUDGET_SHARE * settings.budget
        #: Known optimizers by id.
        self._optimizers: dict[int, MeasuredOptimizer] = {}
        #: The step before the next step in which an optimizer may be measured.
        self._step_before_next = -1
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._is_attached = False
        #: The measured step, its numbers, and the optimizers that are stepping, with the seconds spent before their
        #: steps.
        self._step: int | None = None
        self._numbers = Numbers()
        self._stepping: dict[int, tuple[Parameters, float]] = {}
        #: The measurement of module outputs if the next step is measured, and the seconds spent on it.
        self._next_outputs: Activations | None = None
        self._outputs = Activations(self._name_of, self._fault, self._own.begin, self._add_overhead)
        self._spent = 0.0
        self._accumulated = AccumulatedGradients(
            self._optimizers_to_intercept,
            context.frames.spot,
            context.steps.losses.factor,
            self._fault,
            self._own.begin,
            self._add_overhead,
        )
        self._noise = NoiseScale()
        #: The previously measured step, whose numbers an accelerator may still be computing.
        self._unread_step: tuple[int, Numbers] | None = None
        #: Names of values, by the quantities and layers that were measured.
        self._names: dict[tuple[tuple[str, ...], ...], tuple[str, ...]] = {}
        self._pid, self._thread = os.getpid(), get_ident()
        self._faults = self._dropped = 0
        #: Whether the next measurement is to be made early, and whether an optimizer is being measured; and how often
        #: an early measurement was requested.
        self._measures_early = self._is_measuring = False
        self._early_requests = 0
        context.measure_with(self._request_early_measurement)

    # Attach and detach

    def observing_begins(self) -> None:
        """Register hooks before and after every optimizer's step, and measure outputs of modules in the first step."""
        self._is_attached, self._thread = True, get_ident()
        self._handles = self._handles or [
            optim.register_optimizer_step_pre_hook(self._before_optimizer_step),
            optim.register_optimizer_step_post_hook(self._after_optimizer_step),
        ]
        if not self._optimizers:
            self._attach_interceptors()

    def observing_pauses(self) -> None:
        """Remove all hooks, and pass on what was measured; a forked child passes on nothing."""
        self._is_attached = False
        while self._handles:
            self._handles.pop().remove()
        self._detach_outputs()
        self._accumulated.detach()
        self._stepping.clear()
        if os.getpid() == self._pid:
            self._end_measurement()
            self._read_and_emit()

    def _attach_interceptors(self) -> None:
        """Begin to measure module outputs and accumulated gradients, as the next step is measured."""
        self._detach_outputs()
        self._next_outputs = self._outputs
        self._next_outputs.attach()
        self._accumulated.attach()

    def _detach_outputs(self) -> None:
        """Stop measuring module outputs."""
        if self._next_outputs is not None:
            self._next_outputs.detach()
            self._next_outputs = None

    def _optimizers_to_intercept(self) -> list[tuple[torch.optim.Optimizer, int, bool]]:
        """Return the optimizers that are measured in this step and whose backward calls are intercepted.

        :returns: (optimizer, number of its measurements so far, whether the norm after the backward is taken).
        """
        step = self._context.steps.index
        if self._faults >= MAX_FAULTS or os.getpid() != self._pid:
            return []
        due = [(one.ref(), one) for one in self._optimizers.values() if one.schedule.due(step)]
        return [
            (optimizer, looks := one.schedule.measurement_count, one.interception.measures_norm(looks))
            for optimizer, one in due
            if optimizer is not None and one.interception.intercepts(one.schedule.measurement_count)
        ]

    def _add_overhead(self, mark: Begin, before: float = 0.0) -> None:
        """Count the time since `mark` as overhead of the measurement, and `before` seconds before it."""
        begun, clocked, ran, stalled = mark
        self._spent += self._own.since((begun - before, clocked, ran - before, stalled))

    def _name_of(self, module: nn.Module) -> str | None:
        """Return the full name of `module`, or the class of an outermost module without one; ``None`` if it is not
        known.
        """
        found = self._context.modules.root_and_path(module)
        return (self._context.modules.full_name(*found) or found[0].class_name) if found is not None else None

    def _fault(self, error: Exception) -> None:
        """Count an error of our own; after ``MAX_FAULTS`` of them, nothing is measured any more."""
        self._faults += 1
        self._context.events.faults.add(type(self).__name__, error)
        if self._faults >= MAX_FAULTS:
            self._detach_outputs()

    # Optimizer hooks

    def _before_optimizer_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Begin to measure an optimizer that is about to step, if it is due in this step.

        Called for every optimizer.
        """
        if _compiling():
            return
        step = self._context.steps.index
        if (
            step < self._step_before_next
            and (early := self._optimizers.get(id(optimizer))) is not None
            and early.ref() is optimizer
        ):
            return
        if (
            not self._is_attached
            or self._faults >= MAX_FAULTS
            or os.getpid() != self._pid
            or get_ident() != self._thread
        ):
            return
        if _is_capturing():
            return
        mark = self._own.begin()
        try:
            known = self._optimizers.get(id(optimizer))
            if known is None or known.ref() is not optimizer:
                self._optimizers = {key: one for key, one in self._optimizers.items() if one.ref() is not None}
                schedule = MeasurementSchedule(self._interval, self._share)
                known = MeasuredOptimizer(
                    weakref.ref(optimizer), self._title(optimizer), schedule, Spectra(), InterceptionPolicy()
                )
                self._optimizers[id(optimizer)] = known
            accumulation = self._accumulated.pop_state(optimizer)
            if known.schedule.due(step):
                if accumulation is not None:
                    with private.disable_function_modes():
                        known.interception.record_calls(
                            accumulation.micro_batches.calls, accumulation.is_touched(optimizer)
                        )
                closure = any(map(callable, (*args[1:], *kwargs.values())))
                self._begin_measurement(optimizer, step, known, None if closure else accumulation)
            self._publish_next_step()
            if any(one.schedule.next == step + 1 for one in self._optimizers.values()):
                self._attach_interceptors()
        except Exception as error:
            self._fault(error)
        seconds = self._own.since(mark)
        if id(optimizer) in self._stepping:
            self._stepping[id(optimizer)] = self._stepping[id(optimizer)][0], seconds

    def _title(self, optimizer: object) -> str:
        """Return a name for an optimizer: its class, with a number if the name is taken."""
        name, taken = type(optimizer).__name__, {one.title for one in self._optimizers.values()}
        names = [name, *(f"{name}#{i}" for i in range(2, 3 + len(taken)))]
        return next(one for one in names if one not in taken)

    def _begin_measurement(
        self,
        optimizer: torch.optim.Optimizer,
        step: int,
        known: MeasuredOptimizer,
        accumulation: AccumulationState | None,
    ) -> None:
        """Measure the parameters and gradients of `optimizer` before its step.

        :param known: its state; ``accumulation``: what its backward calls since the last step accumulated, if
            intercepted.
        """
        if step != self._step:
            self._end_measurement()
            self._step = step
            self._context.events.measurement_begins.emit(step)
            if self._next_outputs is not None:
                with private.measuring():
                    self._numbers = self._next_outputs.finish_step()
                self._detach_outputs()
        with private.measuring():
            mine = Parameters(optimizer, known.title, self._numbers, self._context.names.of, accumulation)
            self._stepping[id(optimizer)] = mine, 0.0
            mine.measure_before_step(known.spectra if known.schedule.measurement_count % COSTLY_INTERVAL == 0 else None)

    def _after_optimizer_step(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Measure the updates of an optimizer that has stepped, if it is being measured, and schedule its next
        measurement.
        """
        if _compiling():
            return
        if (
            not self._stepping
            or id(optimizer) not in self._stepping
            or not self._is_attached
            or os.getpid() != self._pid
        ):
            return
        mark = self._own.begin()
        self._is_measuring = True
        mine, before = self._stepping.pop(id(optimizer))
        schedule = self._optimizers[id(optimizer)].schedule
        try:
            with private.measuring():
                mine.measure_after_step()
                scale = self._context.steps.losses.current_scale
                if scale is not None:
                    self._numbers.add("loss_scale", ["GradScaler"], [scale])
            if self._context.steps.index != self._step and not self._stepping:
                self._end_measurement()
        except Exception as error:
            self._fault(error)
        self._accumulated.pop_state(optimizer)  # calls made by a closure
        spent, self._spent = self._spent, 0.0
        step = self._step if self._step is not None else schedule.next
        schedule.measured(step, before + spent + self._own.since(mark))
        if self._next_outputs is None and schedule.next == step + 1:
            self._attach_interceptors()
        self._is_measuring = False
        self._publish_next_step()

    def _request_early_measurement(self) -> None:
        """Request the next measurement as early as the interval allows: a value is an alarm if it persists."""
        if self._early_requests < MAX_HASTENED:
            self._measures_early = True
            self._early_requests += 1
            if not self._is_measuring:
                self._publish_next_step()

    def _publish_next_step(self) -> None:
        """Publish the step of the next measurement, which must not take the fast path, as its loss is needed."""
        if self._measures_early:
            self._measures_early = False
            for one in self._optimizers.values():
                one.schedule.measure_early()
        self._step_before_next = (
            min((self._next_measurement(by, one.schedule) for by, one in self._optimizers.items()), default=0) - 1
        )
        self._context.measure_at(self._step_before_next + 1)

    def _next_measurement(self, by: int, schedule: MeasurementSchedule) -> int:
        """Return the step of an optimizer's next measurement.

        While the optimizer steps, this is the earliest possible step: the steps between may take the fast path.
        """
        return schedule.next if by not in self._stepping or self._step is None else self._step + self._interval

    def step_ended(self, step: Step) -> None:
        """End the measurement of this step, if it was measured."""
        if step.index == self._step and not self._stepping and not _is_capturing():
            self._end_measurement()

    # Results

    def _end_measurement(self) -> None:
        """End the measurement of the current step, and begin to copy its numbers to the host; emit those of the one
        before.
        """
        step, numbers = self._step, self._numbers
        self._step, self._numbers = None, Numbers()
        if self._next_outputs is None:
            self._accumulated.detach()
        if step is None:
            return
        with private.measuring():
            numbers.send()
        self._read_and_emit()
        self._unread_step = step, numbers
        if numbers.all_on_host:
            self._read_and_emit()

    def _read_and_emit(self) -> None:
        """Read the numbers of the last measured step, add derived quantities, and pass them on; wait for them if
        necessary.
        """
        if self._unread_step is None:
            return
        (step, numbers), self._unread_step = self._unread_step, None
        with private.measuring():
            found = derived(numbers.read(), numbers.sizes, numbers.fan_in)
            self._noise.replace_quantities(found)
            factors = found.get("clip_factor", {})
            for one in self._optimizers.values():
                one.interception.note_clip_factor(factors.get(one.title, 1.0))
        if found:
            self._emit_measured(step, found)
        self._context.events.measurement_ended.emit(step)

    def _emit_measured(self, step: int, found: Found) -> None:
        """Pass the values found in `step` to the sink, as names and single-precision numbers, limited in number and
        size.
        """
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
        self._context.deliver_statistics(Measured(step, names, values[:MAX_VALUES_PER_STEP]))

    def unseen(self) -> list[Unseen]:
        """Return how many values per step were dropped because there were too many."""
        if self._dropped <= 0:
            return []
        return [Unseen("statistics", self._dropped, f"a step holds {MAX_VALUES_PER_STEP} of them", hides=False)]


def _is_capturing() -> bool:
    """Return whether a CUDA graph is being captured: our operations would become part of it."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def derived(found: Found, sizes: Mapping[str, int], fan_in: Mapping[str, int]) -> Found:
    """Return `found` with the quantities that are derived from it: root mean squares, weight gains and update ratios.

    :param sizes: number of elements of each parameter.
    :param fan_in: for weights of linear layers, the number of elements that each output sums over.
    """
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
