"""The context object passed to every tracker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records import Measured
from ..source.frames import Frames
from ..store.batches import Batch
from ..torch_internals import private
from .backward.calls import BackwardCalls
from .events import Events
from .forward.modules import ModuleWatch
from .forward.naming import Naming
from .forward.node_places import NodePlaces
from .forward.observers import ForwardObservers
from .forward.torch_call_recorder import TorchCallRecorder
from .forward.values import ForwardValues
from .forward.writes import WriteLog
from .schedule.observed_steps import FastPathLimit, ObservedSteps
from .schedule.settings import Settings
from .schedule.step_hooks import StepFunction, StepHooks
from .schedule.step_schedule import StepSchedule
from .schedule.steps import StepWatch

if TYPE_CHECKING:
    from .tracker import Tracker
    from .trackers.collective_wait import CollectiveWaitWatcher


#: Steps that are inspected closely after an alarm, from the current one on.
STEPS_AFTER_ALARM = 3


@dataclass
class TrackerContext:
    """The parts of a session that trackers use.

    :ivar origins: gives the places where the nodes of graphs were made, as far as they were recorded until now.
    :ivar whole: the session observes a script from its start to its end, and not a block of code.
    :ivar raised: the exception that ended the script, if one did.
    :ivar code: the exit code of a script that ended; ``signal``: the signal that ended it.
    :ivar waiting: the watcher of waits for other processes, if there is one.
    :ivar record_to: the folder of the run, for trackers that write files of their own into it.
    :ivar inspect_until: requests a close inspection of the steps before a number.
    :ivar deliver_statistics: passes statistics of a step to the sink.
    :ivar measure_soon: requests the next statistics soon, because the last ones are an alarm if they persist.
    :ivar next_measured_step: the next step whose loss is needed: no step from it on takes the fast path until the
        number is set again.
    :ivar observed_steps: knows whether the running step is one in which trackers look at more than in others.
    :ivar fast_path_limits: functions that each return how many steps from a given one on may take the fast path.
    :ivar batches: by step, the saved batches of a run without a folder to write them to.
    :ivar restorers: functions that remove our hooks from the process when observing pauses, also if the listener that
        should have done so has failed. Each may be called twice.
    """

    settings: Settings
    events: Events
    names: Naming
    recorder: TorchCallRecorder
    writes: WriteLog
    values: ForwardValues
    steps: StepWatch
    calls: BackwardCalls
    origins: Callable[[], NodePlaces]
    whole: bool = False
    raised: BaseException | None = None
    code: int = 0
    signal: int | None = None
    waiting: CollectiveWaitWatcher | None = None
    record_to: Path | None = None
    inspect_until: Callable[[int], None] = lambda step: None
    deliver_statistics: Callable[[Measured], None] = lambda measured: None
    measure_soon: Callable[[], None] = lambda: None
    next_measured_step: int = sys.maxsize
    observed_steps: ObservedSteps = field(init=False)
    fast_path_limits: list[FastPathLimit] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)
    restorers: list[Callable[[], None]] = field(default_factory=lambda: [private.drop_our_dispatch_modes])

    def __post_init__(self) -> None:
        """Let the fast path end before each observed step."""
        self.observed_steps = ObservedSteps(self.steps)
        self.fast_path_limits.append(self.observed_steps.steps_until_observed)

    def step_hooks(
        self, owner: Tracker, before: StepFunction | None = None, after: StepFunction | None = None
    ) -> StepHooks:
        """Return hooks around each step of every optimizer, also in the fast path; ``attach`` them."""
        hooks = StepHooks(owner, self.events, before, after)
        self.steps.tracker_hooks.append(hooks)
        return hooks

    @classmethod
    def build(
        cls,
        settings: Settings,
        forward: ForwardObservers,
        schedule: StepSchedule,
        calls: BackwardCalls,
        deliver_statistics: Callable[[Measured], None],
        **run: Any,
    ) -> TrackerContext:
        """Make the context from the parts of a session.

        :param run: ``whole`` and ``record_to``.
        """
        return cls(
            settings,
            forward.recorder.events,
            forward.names,
            forward.recorder,
            forward.writes,
            forward.values,
            schedule.steps,
            calls,
            forward.origins,
            inspect_until=schedule.policy.inspections.inspect_until,
            deliver_statistics=deliver_statistics,
            **run,
        )

    @property
    def modules(self) -> ModuleWatch:
        """The modules of the run, their calls and names."""
        return self.names.modules

    @property
    def frames(self) -> Frames:
        """The means to tell the user's frames apart and to find source lines."""
        return self.names.frames

    def end_script(self, error: BaseException | None, code: int = 0) -> None:
        """Note how the script ended: with an exception or not, and with which exit code."""
        self.raised, self.code = error, code

    def receive_signal(self, number: int) -> None:
        """Note the signal that ends the process."""
        self.signal = number

    def watch_waits(self, waiting: CollectiveWaitWatcher) -> None:
        """Give trackers the watcher of waits for other processes."""
        self.waiting = waiting

    def measure_with(self, measure_soon: Callable[[], None]) -> None:
        """Set the function that requests the next statistics soon."""
        self.measure_soon = measure_soon

    def measure_at(self, step: int) -> None:
        """Set the next step whose loss is needed."""
        self.next_measured_step = step

    def restore_process(self) -> None:
        """Remove our hooks from the process: call every function of ``restorers``."""
        for put in self.restorers:
            try:
                put()
            except Exception as error:
                self.events.fault(self, error)

    def on_alarms(self, alarms: Sequence[object], waits: bool) -> None:
        """React to the last statistics.

        :param alarms: new alarms; the next steps that do not take the fast path are inspected closely, and an
            ``alarm`` event is emitted for each.
        :param waits: something is an alarm if it persists: the next statistics are measured soon.
        """
        if alarms:
            self.inspect_until(self.steps.index + self.steps.fast_path_left + STEPS_AFTER_ALARM)
        for alarm in alarms:
            self.events.alarm.emit(alarm)
        if waits:
            self.measure_soon()
