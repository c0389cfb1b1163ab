"""The session: builds the parts that observe a run, begins and ends."""

from __future__ import annotations

from pathlib import Path

from ..basics.process_clock import Startup
from ..records import Facts
from ..torch_internals.async_scalars import Later
from .backward.observers import BackwardObservers
from .backward.reached_leaves import ReachedLeaves
from .events import Events
from .forward.observers import ForwardObservers
from .instrumentation import Instrumentation
from .record_delivery import RecordDelivery, Sink
from .run_facts import RunFacts
from .schedule.budget import Budget
from .schedule.cost import Cost
from .schedule.settings import Settings
from .schedule.step_schedule import StepSchedule
from .statistics.losses import Losses
from .step_controller import StepController
from .tracker_context import TrackerContext
from .trackers import trackers

__all__ = ["Session", "Settings", "Sink"]


class Session:
    """Observes a run from ``start`` to ``stop`` and passes records to `sink`.

    :param own: folders whose code counts as the user's although it is installed.
    :param whole: the session observes a script from its start to its end, and not a block of code.
    :param record_to: the folder of the run, for trackers that write files of their own into it.
    """

    def __init__(
        self,
        sink: Sink,
        settings: Settings | None = None,
        own: tuple[str, ...] = (),
        *,
        whole: bool = False,
        record_to: Path | None = None,
    ) -> None:
        """Build all parts of the session and attach them to its events; nothing is attached to torch yet."""
        self.settings = asked = settings or Settings()
        self.events = events = Events(self._give_up)
        self._later = later = Later()
        holds_results = "memory" not in asked.checks
        self.forward = forward = ForwardObservers.build(own, events, holds_results=holds_results, owner=self)
        self.schedule = schedule = StepSchedule.build(asked, forward.names, events)
        self.backward = backward = BackwardObservers.build(forward, schedule, events, later)
        self._instrumentation = Instrumentation(forward, backward, schedule.state, events)
        self._delivery = RecordDelivery(sink, self, events, later, Losses() if asked.layer_stats else None)
        self.context = TrackerContext.build(
            asked, forward, schedule, backward.calls, self._delivery.measured, whole=whole, record_to=record_to
        )
        self.run_facts = RunFacts(asked, forward, schedule, backward.calls, events, self._delivery.loss_history)
        self._controller = StepController(
            schedule, forward, backward, self._instrumentation, self._delivery, self.context
        )
        for listener in (
            *(backward.sentinels, forward.recorder, forward.writes, forward.values, forward.regions),
            *(forward.detach_points, forward.leaves, schedule.policy.inspections, ReachedLeaves(forward.leaves)),
            self._delivery,
        ):
            events.attach(listener)
        for tracker in trackers():
            if tracker.wanted(asked):
                self.run_facts.attach(tracker(self.context))
        events.attach(self._controller)
        self._is_attached = self._has_ended = False

    def start(self, startup: Startup | None = None) -> None:
        """Attach to torch for the first time; the time since `startup` counts as the start of the run.

        :param startup: when backprobe's work began, if that was before this session was made.
        """
        self._instrumentation.begin()
        self.resume()
        self.cost.started(startup)

    def resume(self) -> None:
        """Attach hooks and modes to torch, and begin a step. Does nothing if attached already, or stopped."""
        if self._is_attached or self.run_facts.stopped is not None:
            return
        self.schedule.steps.start()
        self._instrumentation.attach()
        self.backward.calls.node_counts.end_call()
        self.backward.intercepted.start()
        self._is_attached = True
        try:
            self.events.observing_begins.emit()
            self._controller.begin_step()
        except BaseException:
            self.pause()  # otherwise hooks would stay on that nothing removes
            raise

    def pause(self) -> None:
        """Detach all hooks and modes from torch, and keep the state for ``resume``."""
        if not self._is_attached:
            return
        self._is_attached = False
        self.backward.intercepted.stop()
        self.events.observing_pauses.emit()
        self.context.restore_process()
        self._instrumentation.detach()
        self.events.about_to_write.emit()  # measures what is pending; not in a forked child
        self.schedule.steps.pause()

    def leave(self) -> None:
        """Detach in a forked child what the parent had attached, without finishing anything."""
        self._is_attached = False
        self.backward.intercepted.leave()
        self.backward.calls.leave()
        self._instrumentation.detach()
        self.events.observing_pauses.emit()
        self.context.restore_process()
        self.schedule.steps.remove()

    def stop(self) -> None:
        """Detach from torch permanently: end the last step, and release every reference to the graph."""
        mark = self.cost.mark_end()
        self.schedule.steps.mark_end()
        self.pause()
        if not self._has_ended:
            self._has_ended = True
            self.events.ended.emit()
        self.schedule.steps.stop()
        try:
            self._later.flush()
        except Exception as error:
            self.events.fault(self._delivery, error)
        self.cost.begin_end(mark)

    def _give_up(self, error: BaseException) -> None:
        """Stop observing because a shared part fails every time. The script continues as it would alone."""
        self.run_facts.stop(error)
        self._instrumentation.give_up()
        self.schedule.steps.pause()

    def facts(self) -> Facts:
        """Return facts about the run as a whole, so far."""
        return self.run_facts.facts()

    @property
    def error(self) -> BaseException | None:
        """The first internal error, if there was one."""
        return self.events.faults.first

    @property
    def budget(self) -> Budget:
        """The account of the steps that may be recorded."""
        return self.schedule.policy.budget

    @property
    def calls(self) -> int:
        """The number of backward calls so far."""
        return self.backward.calls.count

    @property
    def cost(self) -> Cost:
        """The account of the time that observing takes."""
        return self.schedule.cost
