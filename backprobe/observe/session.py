"""The session: attaches everything to torch, and detaches it in reverse order."""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from ..process_clock import Startup
from ..records import BriefSteps, Facts, Measured, Step, Stopped, Unseen, Watched
from ..source.excerpts import sources
from ..source.frames import CodeLocation, Frames
from ..source.new_lines import FirstRuns
from ..torch_internals import engine_calls, private
from ..torch_internals.async_scalars import Later
from ..torch_internals.facts import missing
from ..torch_internals.uncompiled import disable_dynamo
from ..torch_texts import GLOBAL_HOOKS, NO_ROOM
from .backward.call_record_builder import CallRecordBuilder
from .backward.calls import ActiveBackward, BackwardCalls
from .backward.engine_interceptor import EngineInterceptor
from .backward.failures import Failures
from .backward.intercepted_functions import InterceptedFunctions
from .backward.pending_call_record import PendingCallRecord
from .backward.reached_leaves import ReachedLeaves
from .backward.sentinel_calls import SentinelCalls
from .events import Events
from .forward.detach_points import DetachPoints
from .forward.leaves import Leaves
from .forward.modules import ModuleWatch
from .forward.naming import Naming
from .forward.origins import Origins
from .forward.regions import Regions
from .forward.torch_call_recorder import TorchCallRecorder
from .forward.values import ForwardValues
from .forward.writes import WriteLog
from .instrumentation import Instrumentation
from .schedule.brief_steps import pass_brief
from .schedule.budget import FREE, Budget
from .schedule.cost import Cost, Took
from .schedule.inspection_schedule import CLOSE, InspectionSchedule
from .schedule.samples import Away, AwayClipNorm
from .schedule.settings import Settings
from .schedule.steps import OnAccelerator, StepWatch
from .statistics.losses import Losses
from .tracker import Tracker
from .tracker_context import TrackerContext
from .trackers import trackers

__all__ = ["Session", "Settings", "Sink"]


#: Minimum interval between two scans for new lines, as a multiple of the duration of the last scan.
SCAN_INTERVAL_RATIO = 400
#: Novelty (a line that runs for the first time, or a graph of another size) makes the next steps be inspected closely.
#: This happens up to ``MAX_NOVELTY_INSPECTIONS`` times without a condition; after that only if the run is
#: ``NOVELTY_GROWTH`` times as long as at the last time. Up to step ``SETTLED_STEP`` everything is new, and new lines
#: start no inspection.
MAX_NOVELTY_INSPECTIONS, NOVELTY_GROWTH, SETTLED_STEP = 16, 1.25, 30


class Sink(Protocol):
    """The receiver of calls and steps that a session recorded. Its methods are called in the training thread."""

    def backward(self, recorded: PendingCallRecord) -> None: ...
    def step(self, step: Step, session: Session) -> None: ...


class Session:
    """Observes a run from ``start`` to ``stop`` and passes records to `sink`.

    :param own: folders whose code counts as the user's although it is installed.
    """

    def __init__(self, sink: Sink, settings: Settings | None = None, own: tuple[str, ...] = ()) -> None:
        self.settings = settings or Settings()
        self.events = events = Events()
        events.give_up = self._broke
        self.frames = frames = Frames(own)
        self.modules = modules = ModuleWatch(frames, events)
        self.leaves = leaves = Leaves(modules, frames, events)
        self.names = names = Naming(modules, leaves, frames)
        self.recorder = recorder = TorchCallRecorder(frames, modules, events)
        recorder.owner = self
        # Recording of the forward.
        writes, values = WriteLog(frames, modules), ForwardValues(frames, modules, events.own)
        values.outside.holding = "memory" not in self.settings.checks
        regions, cuts = Regions(names, writes, events), DetachPoints(names)
        self._regions = regions
        # Which steps are inspected closely.
        budget = self.settings.budget
        self._cost = Cost(events.own, self.settings.inspected_steps, 0.0 if budget is None else FREE, budget)
        #: Steps before this one that are inspected closely are inspected because a failure is to be explained.
        self._explains_until = 0
        self._steps = steps = StepWatch(names, events, self._cost, self._step_over, share=self.settings.budget)
        self._attention = InspectionSchedule(recorder, modules, values, self.settings.inspected_steps)
        # Backward calls, and handlers for intercepted functions: backward calls go through them.
        self._calls = calls = BackwardCalls(recorder, names, steps, values, regions, self._attention)
        failures = Failures(names, regions)
        calls.outcome = CallRecordBuilder(names, steps, recorder, values, failures, calls.second).of
        self.special = InterceptedFunctions(recorder, names, steps, calls)
        # Which steps are recorded, and what is attached in the other steps.
        self.budget = Budget(self.settings.budget, self.settings.level != "minimal")
        self._plain = self.settings.budget is not None and self.settings.plain
        counted = SentinelCalls(calls, names, steps, events, failures.remember_unrecorded)
        events.attach(counted)
        self._unrecorded = EngineInterceptor(
            counted, self.budget, events, self._trouble, self._surprise, self._call_over
        )
        calls.in_one = self._unrecorded.in_one
        self._first_runs = FirstRuns(frames)
        self._found_new: tuple[int, list[CodeLocation]] = (-1, [])
        failures.news = calls.layouts.news = self._news
        failures.noted_since = lambda seq: recorder.recording and seq >= calls.noted_from
        self._switch = Instrumentation(recorder, modules, calls, self._unrecorded, events)
        #: Whether the next step is recorded, if that is decided before the current step is over.
        self._ahead: bool | None = None
        steps.ends_early = lambda: self._leaves_out and not (calls.inside or self._unrecorded.inside)
        steps.passed_by, steps.on_passed = writes.optimizer_passed, self._steps_passed
        #: The step after which new lines are scanned for.
        self._next_look = self._surprises = self._surprised = 0
        #: Something new was found while the budget could not pay for a close inspection.
        self._owed = False
        self.context = TrackerContext(
            self.settings, events, names, recorder, writes, values, steps, calls, self.origins
        )
        self.context.look_closely = self._attention.look_closely
        #: The parts that are asked for records, and for what they could not observe.
        self._known: list[Any] = [regions, cuts, steps, calls.layouts, modules, recorder.log, values, leaves]
        self._handing = handing = _Handing(sink, self)
        self.context.hand_on = handing.measured
        self._unrecorded.later = calls.later = handing.later
        for one in (recorder, writes, values, regions, cuts, leaves, self._attention, ReachedLeaves(leaves), handing):
            events.attach(one)
        for make in trackers():
            if make.wanted(self.settings):
                self.attach(make(self.context))
        events.forward_begins.add(self._forward_begins)
        events.backward_recorded.add(lambda *_: self._call_over())
        events.backward_recorded.add(self._call_explained)
        events.backward_repeated.add(lambda *_: self.budget.good_loss())
        self._entered = self._over = False
        #: The step in which the session ended; ``None`` while it runs.
        self.ended_in: int | None = None
        self.ended_between = False
        #: Where and why the session ended early, if it did.
        self.stopped: Stopped | None = None
        self._filters: list[Any] = []

    def attach(self, tracker: Tracker) -> Callable[[], None]:
        """Attach `tracker` to the events and include it in queries for records. Returns a function that detaches it."""
        undo = self.events.attach(tracker)
        self._known.append(tracker)

        def detach() -> None:
            undo()
            self._known.remove(tracker)

        return detach

    # On and off

    def start(self, startup: Startup | None = None) -> None:
        """Attach to torch.

        :param startup: when backprobe's work began, if that was before this session was made.
        """
        self.recorder.overheads = overheads = private.overheads()
        self.modules.overhead = overheads.module
        self.special.pid = os.getpid()
        self.recorder.log.first = private.next_sequence_nr()
        self.resume()
        self._cost.started(startup)

    def resume(self) -> None:
        """Attach to torch. Does nothing if already attached."""
        if self._entered or self.stopped is not None:
            return
        disable_dynamo()
        self._steps.start()
        # The first warning is about global hooks that run twice around an OptimizedModule: our hooks tell it from the
        # module inside it. The second: a module raised at the recursion limit, so our hooks had no stack left.
        for message in (GLOBAL_HOOKS, NO_ROOM):
            warnings.filterwarnings("ignore", message=message)
            self._filters.append(warnings.filters[0])
        self._switch.attach()
        self._calls.between.over()
        self._entered = self.special.on = True
        try:
            self.events.attached.emit()
            self._begin_step()
        except BaseException:
            self.pause()  # otherwise hooks would stay on that nothing removes
            raise

    def pause(self) -> None:
        """Detach, and keep all state for ``resume``."""
        if not self._entered:
            return
        self._entered = self.special.on = False
        self.events.detached.emit()
        self._put_back()
        for one in self._filters:
            if one in warnings.filters:
                warnings.filters.remove(one)  # type: ignore[attr-defined]
        self._filters.clear()
        self._switch.detach()
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
        self.special.pid = os.getpid()
        self._calls.leave()
        self._switch.detach()
        self.events.detached.emit()
        self._put_back()
        self._entered = self.special.on = False
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
            self._handing.later.flush()
        except Exception as error:
            self.events.fault(self._handing, error)
        self._cost.begin_end(mark)

    def _broke(self, error: BaseException) -> None:
        """Stop observing because a shared part fails every time. The script continues as it would alone, and the reason
        is recorded.
        """
        if self.stopped is None:
            text = f"too much of it failed, with {type(error).__name__}: {error}"[:300]
            self.stopped = Stopped(self._steps.index, text)
        self.special.on = False
        self.recorder.recording = False
        self.modules.stop()
        engine_calls.unlisten(self._unrecorded)
        self._steps.pause()

    # What happens

    def _forward_begins(self) -> None:
        if self._steps.stepped:
            self._steps.finish()
        self._switch.settle()

    def _begin_step(self) -> None:
        step = self._steps.index
        recorded = self._wanted(step) if self._ahead is None else self._ahead
        self._ahead = None
        recorded = recorded and self._switch.may_record()
        self.budget.may_repeat = self._plain and self._calls.may_repeat and not self._steps.alone
        repeats = recorded and self.budget.repeats and self._attention.is_usual(step)
        self._unrecorded.repeating = repeats
        inspecting = self._attention.begin_step(step, self.settings, recorded and not repeats)
        self._cost.explains = self._cost.explains or (inspecting and step < self._explains_until)
        self._switch.to((recorded and not repeats) or step < self.settings.inspected_steps)
        self._switch.leave_calls_to_engine(not recorded and self.settings.level == "minimal")
        self._steps.samples_away = recorded
        if self._switch.on:
            self.events.step_begins.emit(step, inspecting)

    @property
    def _leaves_out(self) -> bool:
        """Whether there may be steps that are not recorded."""
        asked = self.settings
        some = asked.level == "minimal" or asked.every > 1 or asked.first > 0 or asked.last is not None
        return some or asked.budget is not None

    def _wanted(self, step: int) -> bool:
        return self._attention.wanted(step, self.settings, self.budget)

    def _step_over(self, step: Step, away: list[Any], norms: list[Away | AwayClipNorm]) -> None:
        mark = self.events.own.begin()
        self._handing.waits(step, away, norms)
        first = step.index < self.settings.inspected_steps
        asked, recorder = self._attention.asked, self.recorder
        repeated = self._unrecorded.have_repeated()
        if repeated is False:
            self.budget.was_like_none()
        told = recorder.recording or bool(repeated), recorder.inspecting, first, asked, bool(repeated)
        self.budget.step_ended(self._cost.seconds, step.watching, *told, explains=self._cost.explained)
        self.events.step_ended.emit(step)
        self.recorder.log.trim()
        self.modules.new_step(self._steps.index)
        self._look_owed()
        self._begin_step()
        if not self._switch.on and step.index >= self._next_look:
            self._look_for_new_lines(step.index, step.seconds, mark)
        else:
            self.events.own.since(mark)
        off = not self._switch.on and not self.recorder.idle
        if off and self._ahead is None and not self._unrecorded.repeating:
            begun = self._steps.index
            room = min(self._attention.room(begun, self.budget), max(self.context.next_look - begun, 0))
            tells = self._tells()
            room = min([room, *(may_pass(begun, self.budget.long_steps) for may_pass in self.context.may_pass)])
            if not tells and self._steps.losses.is_odd_for_once and self.budget.tells():
                return  # the next step finds out how its loss is summed up; those after it keep their losses
            several = self.context.waiting is not None
            self._steps.let_pass(min(self.budget.lets_pass(tells, several), room), tells)

    def _look_for_new_lines(self, step: int, seconds: float, mark: Any) -> None:
        """Scan for lines that ran for the first time, after an unrecorded step.

        :param step: the step that is over.
        :param seconds: how long it took.
        """
        found = self._new_lines()
        if found:
            self._found_new = step, found
            if step > SETTLED_STEP and self._first_runs.sure:
                self._surprise(self._steps.index)  # that step has begun already
        spent = self.events.own.since(mark)
        # The first scans follow each other closely: lines that ran while the interpreter began to specialise the code
        # are known only after that.
        self._next_look = step + 1 + min(int(SCAN_INTERVAL_RATIO * spent / max(seconds, 1e-6)), 8 + 2 * step)

    def _tells(self) -> bool:
        """Return whether records are made of fast-path steps (Note [Brief steps])."""
        return not self.settings.record_ops and bool(self._steps.losses.plain) and self.budget.tells()

    def _steps_passed(self, steps: int, seconds: float, between: bool) -> None:
        """Account for `steps` fast-path steps that are over.

        :param between: no step is running.
        """
        self._unrecorded.settle()
        mine = self._cost.step_ended(seconds, steps)
        self.budget.have_passed(steps, self._cost.seconds, mine)
        self._tell(mine / steps)
        self.modules.new_step(self._steps.index)
        if between:
            self._look_owed()
            self._begin_step()
        if not self._switch.on and self._steps.index - 1 >= self._next_look:
            self._look_for_new_lines(self._steps.index - 1, seconds / steps, self.events.own.begin())

    def _tell(self, mine: float) -> None:
        """Pass on records of fast-path steps; backprobe took `mine` seconds of each."""
        mark = self.events.own.begin()
        steps, away = self._steps.have_passed(mine)
        if steps:
            self._handing.brief_steps(steps, away)
        seconds = self.events.own.since(mark)
        if steps:
            self.budget.telling(len(steps), seconds)

    def _call_over(self) -> None:
        """End an outermost backward call. If no optimizer marks the end of a step, the next step begins here."""
        if self._calls.inside or not self._steps.alone or self._ahead is not None:
            return
        self._ahead = self._wanted(self._steps.index + 1)
        if self._ahead and not self.recorder.recording:
            self.recorder.recording, self.recorder.inspecting = True, False
        self._switch.to(self._ahead or self._steps.index + 1 < self.settings.inspected_steps, True)

    def _call_explained(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Update the inspection schedule after a recorded call. If something was wrong in it, this step, and the next
        ones if they are inspected closely, count as explaining a failure.
        """
        if recorded.trouble:
            self._cost.explains = True
            self._explains_until = max(self._explains_until, recorded.step + 1 + CLOSE)
        if any(root.bad for root in recorded.roots):
            self.budget.bad_loss(scaled=self._steps.losses.scaler is not None)
        elif recorded.kind != "autograd.grad":
            self.budget.good_loss()

    def _news(self) -> list[CodeLocation]:
        """Return the lines that ran for the first time in this step or the one before, while steps are not recorded. In
        the first steps that is not known: the lines of the running functions count.
        """
        if self._switch.on and not self._calls.left_to_engine:
            return []
        step = self._steps.index
        if self._found_new[0] < step - 1:
            self._found_new = step, []
        self._found_new[1].extend(self._new_lines(True))
        return self._first_runs.entered(self._found_new[1], sys._getframe(1), step < self.settings.inspected_steps)

    def _new_lines(self, called: bool = False) -> list[CodeLocation]:
        """Return the lines that ran for the first time since the last scan.

        :param called: include the lines of functions that those lines called.
        """
        try:
            found = self._first_runs.look()
            return self._first_runs.called_from(found) if called and found else found
        except Exception as error:  # may be called in a hook of an optimizer: the script must not see the error
            self.events.fault(self._first_runs, error)
            return []

    def _surprise(self, step: int) -> None:
        """Inspect the steps after `step` closely because something new happened in it, as soon as the budget allows
        (Note [Kept for what is new]).
        """
        if self._surprises < MAX_NOVELTY_INSPECTIONS or step >= NOVELTY_GROWTH * self._surprised:
            self._owed = not self.budget.affords
            if not self._owed:
                self._surprises, self._surprised = self._surprises + 1, step
                self._trouble(step)

    def _look_owed(self) -> None:
        """Start an inspection that was deferred, if the budget allows it now. Called before a step begins."""
        if self._owed:
            self._surprise(self._steps.index - 1)

    def saw_bad(self) -> None:
        """Inspect the next steps closely: the loss of an earlier step was not finite, and this is known only now."""
        if self._surprises < MAX_NOVELTY_INSPECTIONS:
            self._surprises += 1
            self._trouble(self._steps.index)

    def _trouble(self, step: int) -> None:
        """Inspect the steps after `step` closely because something is wrong in it, though it is not recorded."""
        self._attention.something_new(step)
        self._steps.stop_passing()

    # What is known

    @property
    def error(self) -> BaseException | None:
        """The first internal error, if there was one."""
        return self.events.faults.first

    @property
    def calls(self) -> int:
        """The number of backward calls so far."""
        return self._calls.count

    def recomputing(self, seqs: list[int]) -> Sequence[int]:
        """Return those of the nodes `seqs` that may recompute a checkpoint's tensors."""
        return self._regions.within(seqs) if self._regions.known else ()

    @property
    def took(self) -> Took:
        """The time that observing has taken so far."""
        return self._cost.took

    @property
    def cost(self) -> Cost:
        """The account of the time that observing takes."""
        return self._cost

    def origins(self) -> Origins:
        """Return the places where the nodes of a graph were made, as far as they were recorded."""
        return Origins(self.recorder.log, self.modules, self.frames)

    def sources(self, seen: Any = ()) -> dict[str, str]:
        """Return the source text to store with the recording, by file. It contains the lines that the records `seen`
        refer to (Note [Source excerpts]).
        """
        return sources(self.names.frames, seen, self.settings.source)

    def facts(self) -> Facts:
        """Return facts about the run as a whole, so far."""
        self.leaves.whole = self.budget.share is None or self.budget.recorded >= self.budget.steps
        parameters = self.leaves.parameters(self._steps.listed, self._steps.present, self._steps.goes_on)
        seen = tuple(record for records in self._ask("records") for record in records)
        seen += self.leaves.free(self._steps.listed)
        return Facts(parameters, self.unseen(), tuple(sorted(self.settings.checks)), (*seen, self.watched()))

    def watched(self) -> Watched:
        """Return the record of how much of the run was observed so far."""
        settings, steps = self.settings, self._steps.index
        first, last = (0, steps - 1) if steps else (None, None)
        asked = settings.level, settings.first, settings.last, settings.every
        spent = self.budget
        counts = spent.recorded, spent.steps, spent.passed, spent.repeated, spent.only_counted
        return Watched(first, last, *asked, self.stopped, settings.budget, *counts)

    def unseen(self) -> tuple[Unseen, ...]:
        """Return counts of what was not observed."""
        found = tuple(one for unseen in self._ask("unseen") for one in unseen)
        return (*self.events.faults.unseen(), *missing(bool(self.calls)), *found)

    def _ask(self, what: str) -> list[Any]:
        """Call the method `what` of every part that has it, and return the answers."""
        found = []
        for one in self._known:
            ask = getattr(one, what, None)
            try:
                if ask is not None:
                    found.append(tuple(ask()))
            except Exception as error:
                self.events.faults.add(type(one).__name__, error)
        return found


class _Handing:
    """Passes records to a sink. A step with numbers that are still on an accelerator waits for them, and so do the
    steps after it: Note [Nothing waits].
    """

    #: The session ends if this part keeps failing.
    vital = True

    def __init__(self, sink: Sink, session: Session) -> None:
        self._sink, self._session = sink, session
        self._steps: deque[Step] = deque()
        #: Step -> how many numbers of it are not known yet.
        self._missing: dict[int, int] = {}
        self.later = Later()
        self._losses = Losses() if session.settings.layer_stats else None

    def waits(self, step: Step, losses: list[Any], norms: Sequence[Away | AwayClipNorm] = ()) -> None:
        """Make `step`, which is over, wait for parts of its loss and for norms."""
        if losses or norms:
            self._missing[step.index] = bool(losses) + len(norms)
        if losses:
            with private.unseen(), torch.no_grad(), private.unnoticed():
                self.later.add(losses[0] if len(losses) == 1 else torch.stack(losses).sum(), self._loss(step.index))
        for one in norms:
            self.later.add_all(one.numbers, self._norms(step.index, one))

    def _loss(self, index: int) -> Callable[[float], None]:
        def known(loss: float) -> None:
            if loss - loss != 0.0:
                self._session.saw_bad()
            self._known(index, lambda step: replace(step, loss=loss + (step.loss or 0.0)))

        return known

    def _norms(self, index: int, away: Away | AwayClipNorm) -> Callable[[list[float]], None]:
        return lambda read: self._known(index, lambda step: away.put(step, read))

    def _known(self, index: int, change: Callable[[Step], Step]) -> None:
        for at, step in enumerate(self._steps):
            if step.index == index:
                self._steps[at] = change(step)
        self._missing[index] -= 1
        if not self._missing[index]:
            del self._missing[index]
            self._hand()

    def _hand(self) -> None:
        while self._steps and self._steps[0].index not in self._missing:
            step = self._steps.popleft()
            if self._losses is not None:
                self._losses.add(step)
            self._sink.step(step, self._session)

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        self.later.flush()
        self._sink.backward(recorded)

    backward_repeated = backward_recorded

    def measured(self, measured: Measured) -> None:
        take = getattr(self._sink, "measured", None)  # sinks of plugins may have none
        if take is not None:
            take(measured if self._losses is None else self._losses.beside(measured))

    def step_ended(self, step: Step) -> None:
        self._steps.append(step)
        self._hand()

    def brief_steps(self, steps: BriefSteps, away: Mapping[int, OnAccelerator]) -> None:
        """Pass on fast-path steps, which are earlier than the running step (Note [Brief steps]).

        :param away: by step, what of it is on an accelerator.
        """
        try:
            if away or self._steps:
                for step in steps:
                    self.waits(step, *away.get(step.index, ([], [])))
                    self.step_ended(step)
                return
            if self._losses is not None:
                for step in steps:
                    self._losses.add(step)
            pass_brief(self._sink, steps, self._session)
        except Exception as error:
            self._session.events.fault(self, error)
