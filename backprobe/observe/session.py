"""The session: owns everything that is attached to torch, and undoes it in reverse order."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..records import Facts, Step, Stopped, Unseen, Watched
from ..source.frames import Frames
from ..torch_texts import GLOBAL_HOOKS
from ..torchside import private
from ..torchside.facts import missing
from ..torchside.uncompiled import keep_out
from .backward.calls import BackwardCalls, Running
from .backward.failures import Failures
from .backward.outcome import Outcome
from .backward.reached import Reached
from .backward.recorded import Recorded
from .backward.special import Special
from .events import Events, Tracker
from .forward.cuts import Cuts
from .forward.eye import Eye
from .forward.leaves import Leaves
from .forward.modules import ModuleWatch
from .forward.naming import Naming
from .forward.origins import Origins
from .forward.regions import Regions
from .forward.values import Values
from .forward.writes import WriteLog
from .scene import Scene
from .schedule.cost import Cost, Took
from .schedule.detail import Attention, Settings
from .schedule.steps import StepWatch
from .trackers import trackers

__all__ = ["Session", "Settings", "Sink"]


class Sink(Protocol):
    """Who wants to know. Called in the thread that trains."""

    def backward(self, recorded: Recorded) -> None: ...
    def step(self, step: Step, session: Session) -> None: ...


class Session:
    """Watches from ``start`` to ``stop``. What it saw goes to `sink`.

    :param own: folders whose code is the user's though it is installed.
    """

    def __init__(self, sink: Sink, settings: Settings | None = None, own: tuple[str, ...] = ()) -> None:
        self.settings = settings or Settings()
        self.events = events = Events()
        events.give_up = self._broke
        self.frames = frames = Frames(own)
        self.modules = modules = ModuleWatch(frames, events)
        self.leaves = leaves = Leaves(modules, frames, events)
        self.names = names = Naming(modules, leaves, frames)
        self.eye = eye = Eye(frames, modules, events)
        eye.owner = self
        # What is noted of the forward.
        writes, values = WriteLog(frames, modules), Values(frames, modules, events.own)
        values.outside.holding = "memory" not in self.settings.ask
        regions, cuts = Regions(names, writes, events), Cuts(names)
        self._regions = regions
        # How much is looked at.
        self._cost = Cost(events.own, self.settings.careful)
        self._steps = steps = StepWatch(names, events, self._cost, self._step_over)
        self._attention = Attention(eye, modules, values, self.settings.careful)
        # Backward calls, and what the eye does at functions that mean something: calls go through it.
        self._calls = calls = BackwardCalls(eye, names, steps, values, regions, self._attention)
        calls.outcome = Outcome(names, steps, eye, values, Failures(names, regions), calls.second).of
        self.special = Special(eye, names, steps, calls)
        self.scene = Scene(self.settings, events, names, eye, writes, steps, calls, self.origins)
        self.scene.look_closely = self._attention.look_closely
        #: Those who are asked for records, and for what they did not see.
        self._known: list[Any] = [regions, cuts, steps, calls.layouts, modules, eye.log, values, leaves]
        for one in (eye, writes, values, regions, cuts, leaves, self._attention, Reached(leaves), _Handing(sink, self)):
            events.attach(one)
        for make in trackers():
            if make.wanted(self.settings):
                self.attach(make(self.scene))
        events.listen("forward_begins", self._forward_begins)
        self._entered = self._over = False
        #: Where watching ended early, and why.
        self.stopped: Stopped | None = None
        self._filter: Any = None

    def attach(self, tracker: Tracker) -> Callable[[], None]:
        """Let `tracker` hear what happens, and ask it for records. What is returned undoes it."""
        undo = self.events.attach(tracker)
        self._known.append(tracker)

        def detach() -> None:
            undo()
            self._known.remove(tracker)

        return detach

    # On and off

    def start(self) -> None:
        self.eye.overheads = overheads = private.overheads()
        self.modules.overhead = overheads.module
        self.special.pid = os.getpid()
        self.eye.log.first = private.next_sequence_nr()
        self.resume()

    def resume(self) -> None:
        """Attach. Does nothing where it is attached already."""
        if self._entered or self.stopped is not None:
            return
        keep_out()
        self.modules.start()
        self._steps.start()
        self._begin_step()
        # Said for hooks that do something with what they get; ours tell an OptimizedModule from the module inside it.
        warnings.filterwarnings("ignore", message=GLOBAL_HOOKS)
        self._filter = warnings.filters[0]
        self.eye.__enter__()
        private.show_backward(self.eye)
        self._entered = self.special.on = True
        self.events.tell("attached")

    def pause(self) -> None:
        """Detach, and keep what is known for ``resume``."""
        if not self._entered:
            return
        self._entered = self.special.on = False
        self.events.tell("detached")
        private.unshow_backward(self.eye)
        self.eye.__exit__(None, None, None)
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
        self.events.tell("about_to_write")  # nothing waits to be looked at any longer
        self._steps.pause()
        self.modules.stop()

    def leave(self) -> None:
        """In a forked child: take off what the parent had put on, without finishing anything."""
        self.special.pid = os.getpid()
        self._calls.leave()
        private.unshow_backward(self.eye)
        private.drop_mode(self.eye)
        self.events.tell("detached")
        self._entered = self.special.on = False
        self.modules.stop()
        self._steps.remove()

    def stop(self) -> None:
        """Detach for good: the last step is over, and nothing of the graph is held any longer."""
        self.pause()
        if not self._over:
            self._over = True
            self.events.tell("ended")
        self._steps.stop()

    def _broke(self, error: BaseException) -> None:
        """What all stand on fails all the time. The script goes on as it would alone; we stop watching, and say so."""
        if self.stopped is None:
            text = f"too much of it failed, with {type(error).__name__}: {error}"[:300]
            self.stopped = Stopped(self._steps.index, text)
        self.special.on = False
        self.eye.noting = False
        self.modules.stop()
        self._steps.pause()

    # What happens

    def _forward_begins(self) -> None:
        if self._steps.stepped:
            self._steps.finish()

    def _begin_step(self) -> None:
        careful = self._attention.begin_step(self._steps.index, self.settings)
        self.events.tell("step_begins", self._steps.index, careful)

    def _step_over(self, step: Step) -> None:
        mark = self.events.own.mark()
        self.events.tell("step_over", step)
        self.eye.log.trim()
        self.modules.new_step(self._steps.index)
        self._begin_step()
        self.events.own.since(mark)

    # What is known

    @property
    def error(self) -> BaseException | None:
        """The first thing of ours that failed, if anything did."""
        return self.events.faults.first

    @property
    def calls(self) -> int:
        """Backward calls so far."""
        return self._calls.count

    def recomputing(self, seqs: list[int]) -> Sequence[int]:
        """Which nodes, of these numbers, may recompute what a checkpoint did not keep."""
        return self._regions.within(seqs) if self._regions.known else ()

    @property
    def took(self) -> Took:
        """What watching has taken so far."""
        return self._cost.took

    def origins(self) -> Origins:
        """Where the nodes of a graph were made, as far as it was recorded."""
        return Origins(self.eye.log, self.modules, self.frames)

    def facts(self) -> Facts:
        """What is known of the run as a whole, so far."""
        parameters = self.leaves.parameters(self._steps.listed, self._steps.present)
        seen = tuple(record for records in self._ask("records") for record in records)
        seen += self.leaves.free(self._steps.listed)
        return Facts(parameters, self.unseen(), tuple(sorted(self.settings.ask)), (*seen, self.watched()))

    def watched(self) -> Watched:
        """What is watched of the run, so far."""
        settings, steps = self.settings, self._steps.index
        first, last = (0, steps - 1) if steps else (None, None)
        return Watched(first, last, settings.level, settings.first, settings.last, settings.every, self.stopped)

    def unseen(self) -> tuple[Unseen, ...]:
        """What was not observed, counted."""
        found = tuple(one for unseen in self._ask("unseen") for one in unseen)
        return (*self.events.faults.unseen(), *missing(bool(self.calls)), *found)

    def _ask(self, what: str) -> list[Any]:
        """What each of those who know something answers."""
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
    """Hands what was seen to a sink."""

    #: Watching is over where this is.
    vital = True

    def __init__(self, sink: Sink, session: Session) -> None:
        self._sink, self._session = sink, session

    def backward_over(self, running: Running, recorded: Recorded) -> None:
        self._sink.backward(recorded)

    def step_over(self, step: Step) -> None:
        self._sink.step(step, self._session)
