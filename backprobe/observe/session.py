"""The session: attaches everything to torch, and detaches it in reverse order."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..process_clock import Startup
from ..records import Facts, Stopped, Unseen
from ..source.excerpts import sources
from ..source.frames import Frames
from ..torch_internals import engine_calls, private
from ..torch_internals.async_scalars import Later
from ..torch_internals.uncompiled import disable_dynamo
from ..torch_texts import GLOBAL_HOOKS, NO_ROOM
from .backward.call_record_builder import CallRecordBuilder
from .backward.calls import BackwardCalls
from .backward.engine_interceptor import EngineInterceptor
from .backward.failures import Failures
from .backward.intercepted_functions import InterceptedFunctions
from .backward.reached_leaves import ReachedLeaves
from .backward.second import SecondOrder
from .backward.sentinel_calls import SentinelCalls
from .events import Events
from .forward.detach_points import DetachPoints
from .forward.leaves import Leaves
from .forward.modules import ModuleWatch
from .forward.naming import Naming
from .forward.node_places import NodePlaces
from .forward.regions import Regions
from .forward.torch_call_recorder import TorchCallRecorder
from .forward.values import ForwardValues
from .forward.writes import WriteLog
from .instrumentation import Instrumentation
from .record_delivery import RecordDelivery, Sink
from .recording_state import RecordingState
from .run_facts import RunFacts
from .schedule.budget import FREE_SECONDS
from .schedule.cost import Cost, CostSummary
from .schedule.new_line_scanner import NewLineScanner
from .schedule.settings import Settings
from .schedule.step_policy import StepPolicy
from .schedule.steps import StepWatch
from .statistics.losses import Losses
from .step_controller import StepController
from .tracker import Tracker
from .tracker_context import TrackerContext
from .trackers import trackers

__all__ = ["Session", "Settings", "Sink"]


class Session:
    """Observes a run from ``start`` to ``stop`` and passes records to `sink`.

    :param own: folders whose code counts as the user's although it is installed.
    """

    def __init__(self, sink: Sink, settings: Settings | None = None, own: tuple[str, ...] = ()) -> None:
        self.settings = asked = settings or Settings()
        self.events = events = Events(self._give_up)
        self.policy = policy = StepPolicy(asked)
        self.budget = policy.budget
        self._state, later = RecordingState(), Later()
        # The forward, and what things are called.
        self.frames = frames = Frames(own)
        self.modules = modules = ModuleWatch(frames, events)
        self.leaves = leaves = Leaves(modules, frames, events)
        self.names = names = Naming(modules, leaves, frames)
        self.recorder = recorder = TorchCallRecorder(frames, modules, events, owner=self)
        writes = WriteLog(frames, modules)
        values = ForwardValues(frames, modules, events.own, holds_results="memory" not in asked.checks)
        self._regions, detach_points = Regions(names, writes, events), DetachPoints(names)
        # Steps.
        free = 0.0 if asked.budget is None else FREE_SECONDS
        self._cost = Cost(events.own, asked.inspected_steps, free, asked.budget)
        self._steps = steps = StepWatch(
            names, events, self._cost, self._state, ends_early=policy.omits_steps, share=asked.budget
        )
        scanner = NewLineScanner(frames, steps, events, self._state, asked.inspected_steps)
        # Backward calls: of recorded steps, and of those in which only the engine is intercepted.
        second = SecondOrder(recorder.log, names)
        failures = Failures(names, self._regions, recorder, self._state, scanner)
        builder = CallRecordBuilder(names, steps, recorder, values, failures, second)
        self._calls = calls = BackwardCalls(
            recorder,
            names,
            steps,
            values,
            self._regions,
            policy.inspections,
            second,
            builder,
            self._state,
            scanner,
            later,
            compiled_call=lambda *call: self._interceptor.in_one(*call),
        )
        self.intercepted = InterceptedFunctions(recorder, names, steps, calls)
        sentinels = SentinelCalls(calls, names, steps, events, failures.remember_unrecorded)
        self._interceptor = EngineInterceptor(sentinels, self.budget, events, self._state, later)
        self._instrumentation = Instrumentation(recorder, modules, calls, self._interceptor, self._state, events)
        # Where records go, and who listens.
        delivery = RecordDelivery(sink, self, events, later, Losses() if asked.layer_stats else None)
        self.context = TrackerContext(
            asked,
            events,
            names,
            recorder,
            writes,
            values,
            steps,
            calls,
            self.origins,
            look_closely=policy.inspections.look_closely,
            hand_on=delivery.measured,
        )
        parts = [self._regions, detach_points, steps, calls.layouts, modules, recorder.log, values, leaves]
        self.run_facts = RunFacts(asked, self.budget, steps, calls, leaves, events, parts)
        self._later, self._delivery = later, delivery
        for listener in (
            *(sentinels, recorder, writes, values, self._regions, detach_points, leaves, policy.inspections),
            *(ReachedLeaves(leaves), delivery),
        ):
            events.attach(listener)
        for tracker in trackers():
            if tracker.wanted(asked):
                self.attach(tracker(self.context))
        self._controller = StepController(
            *(policy, recorder, modules, values, steps, calls, self._interceptor, self._instrumentation),
            *(self._state, scanner, self._cost, delivery, self.context, events),
        )
        events.attach(self._controller)
        self._entered = self._over = False
        #: The step in which the session ended; ``None`` while it runs.
        self.ended_in: int | None = None
        self.ended_between = False
        self._filters: list[Any] = []

    # On and off

    def start(self, startup: Startup | None = None) -> None:
        """Attach to torch.

        :param startup: when backprobe's work began, if that was before this session was made.
        """
        self.recorder.overheads = overheads = private.overheads()
        self.modules.overhead = overheads.module
        self.intercepted.pid = os.getpid()
        self.recorder.log.first = private.next_sequence_nr()
        self.resume()
        self._cost.started(startup)

    def resume(self) -> None:
        """Attach to torch. Does nothing if already attached."""
        if self._entered or self.run_facts.stopped is not None:
            return
        disable_dynamo()
        self._steps.start()
        # The first warning is about global hooks that run twice around an OptimizedModule: our hooks tell it from the
        # module inside it. The second: a module raised at the recursion limit, so our hooks had no stack left.
        for message in (GLOBAL_HOOKS, NO_ROOM):
            warnings.filterwarnings("ignore", message=message)
            self._filters.append(warnings.filters[0])
        self._instrumentation.attach()
        self._calls.between.over()
        self._entered = self.intercepted.on = True
        try:
            self.events.attached.emit()
            self._controller.begin_step()
        except BaseException:
            self.pause()  # otherwise hooks would stay on that nothing removes
            raise

    def pause(self) -> None:
        """Detach, and keep all state for ``resume``."""
        if not self._entered:
            return
        self._entered = self.intercepted.on = False
        self.events.detached.emit()
        self._put_back()
        for one in self._filters:
            if one in warnings.filters:
                warnings.filters.remove(one)  # type: ignore[attr-defined]
        self._filters.clear()
        self._instrumentation.detach()
        self.events.about_to_write.emit()  # measures what is pending; not in a forked child
        self._steps.pause()

    def _put_back(self) -> None:
        for put in self.context.put_back:
            try:
                put()
            except Exception as error:
                self.events.fault(self, error)

    def leave(self) -> None:
        """Detach in a forked child what the parent had attached, without finishing anything."""
        self.intercepted.pid = os.getpid()
        self._calls.leave()
        self._instrumentation.detach()
        self.events.detached.emit()
        self._put_back()
        self._entered = self.intercepted.on = False
        self._steps.remove()

    def stop(self) -> None:
        """Detach permanently: end the last step, and release every reference to the graph."""
        mark = self._cost.mark_end()
        if not self._over:
            self.ended_in, self.ended_between = self._steps.index, self._steps.stepped
        self.pause()
        if not self._over:
            self._over = True
            self.events.ended.emit()
        self._steps.stop()
        try:
            self._later.flush()
        except Exception as error:
            self.events.fault(self._delivery, error)
        self._cost.begin_end(mark)

    def _give_up(self, error: BaseException) -> None:
        """Stop observing because a shared part fails every time. The script continues as it would alone, and the reason
        is recorded.
        """
        if self.run_facts.stopped is None:
            text = f"too much of it failed, with {type(error).__name__}: {error}"[:300]
            self.run_facts.stopped = Stopped(self._steps.index, text)
        self.intercepted.on = False
        self.recorder.recording = False
        self.modules.stop()
        engine_calls.unlisten(self._interceptor)
        self._steps.pause()

    # What is known

    def attach(self, tracker: Tracker) -> Callable[[], None]:
        """Attach `tracker`, and ask it for records, too. Returns a function that undoes both."""
        return self.run_facts.attach(tracker)

    def facts(self) -> Facts:
        """Return facts about the run as a whole, so far."""
        return self.run_facts.facts()

    def unseen(self) -> tuple[Unseen, ...]:
        """Return counts of what was not observed."""
        return self.run_facts.unseen()

    @property
    def error(self) -> BaseException | None:
        """The first internal error, if there was one."""
        return self.events.faults.first

    @property
    def calls(self) -> int:
        """The number of backward calls so far."""
        return self._calls.count

    @property
    def took(self) -> CostSummary:
        """The time that observing has taken so far."""
        return self._cost.took

    @property
    def cost(self) -> Cost:
        """The account of the time that observing takes."""
        return self._cost

    def recomputing(self, seqs: list[int]) -> Sequence[int]:
        """Return those of the nodes `seqs` that may recompute a checkpoint's tensors."""
        return self._regions.within(seqs) if self._regions.known else ()

    def origins(self) -> NodePlaces:
        """Return the places where the nodes of a graph were made, as far as they were recorded."""
        return NodePlaces(self.recorder.log, self.modules, self.frames)

    def sources(self, seen: Any = ()) -> dict[str, str]:
        """Return the source text to store with the recording, by file. It contains the lines that the records `seen`
        refer to (Note [Source excerpts]).
        """
        return sources(self.names.frames, seen, self.settings.source)
