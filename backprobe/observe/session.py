"""The session: owns everything that is attached to torch, and undoes it in reverse order."""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any, Protocol

from ..records import Facts, Step, Unseen
from ..source.frames import Frames
from ..torch_texts import GLOBAL_HOOKS
from ..torchside import private
from .asked import Asked
from .backward.calls import BackwardCalls, Running
from .backward.outcome import Outcome
from .backward.recorded import Recorded
from .backward.special import Special
from .forward.eye import Eye
from .forward.leaves import Leaves
from .forward.modules import ModuleWatch
from .forward.naming import Naming
from .forward.origins import Origins
from .forward.regions import Regions
from .forward.writes import WriteLog
from .schedule.cost import Cost
from .schedule.detail import Attention, Settings
from .schedule.steps import StepWatch
from .trackers.created import CreatedGraphs
from .trackers.hooked import Hooked
from .trackers.memory import Memory
from .trackers.no_gradient import NoGradients
from .trackers.nodelog import NodeLog
from .trackers.ranks import Ranks
from .trackers.recompute import Recompute
from .trackers.retained import RetainedGraphs
from .trackers.silent import SilentWrites
from .trackers.strays import Strays

__all__ = ["Session", "Settings", "Sink"]

_clock = time.perf_counter


class Sink(Protocol):
    """Who wants to know. Called in the thread that trains."""

    def backward(self, recorded: Recorded) -> None: ...
    def step(self, step: Step, session: Session) -> None: ...


class Session:
    """Watches from ``start`` to ``stop``. What it saw goes to `sink`.

    :param own: folders whose code is the user's though it is installed.
    """

    def __init__(self, sink: Sink, settings: Settings | None = None, own: tuple[str, ...] = ()) -> None:
        self.sink = sink
        self.settings = settings or Settings()
        self.frames = Frames(own)
        self.modules = ModuleWatch(self.frames)
        self.leaves = Leaves(self.modules, self.frames)
        self.names = Naming(self.modules, self.leaves, self.frames)
        self.ranks = Ranks(self.frames, say=not self.settings.quiet)
        self._regions = Regions(self.modules, self.frames, WriteLog())
        self.eye = Eye(self.frames, self.modules, self._regions)
        self._steps: StepWatch = StepWatch(self.names.of, self._step_over)
        self._cost = Cost(self.eye.log, self.modules, self._steps)
        self._attention = Attention(self.eye, self.modules, self.settings.careful)
        self._calls = BackwardCalls(self.eye, self.names, self._steps, self._attention, self._cost)
        self._no_gradients = NoGradients(self.eye, self.names)
        self._outcome = Outcome(self.eye, self.names, self._steps, self._attention, self._no_gradients)
        #: What the eye does when a function is called that means something: backward calls go through it.
        self.special = Special(self.eye, self.names, self._steps, self._calls, self._no_gradients)
        # Who looks for one thing each.
        self._hooked = Hooked(self.modules, self.frames)
        self._recompute = Recompute(self.modules, self.frames)
        self._retention = RetainedGraphs(self.modules, self.frames, self.eye.log)
        self._strays = Strays(self.modules, self.frames)
        self._created = CreatedGraphs(self.names)
        self._silent = SilentWrites(self.eye, self.names)
        self._memory = Memory(self.names, 3 if "memory" in self.settings.ask else 0)
        self._log = NodeLog(self.settings.log) if self.settings.log else None
        self._asked = Asked(self.settings, self.names, self._regions)
        self._connect()
        #: The sequence number that the first node after ``start`` gets.
        self.first = 0
        self._entered = False
        self._filter: Any = None
        #: What failed in our own code, if anything did.
        self.error: BaseException | None = None

    def _connect(self) -> None:
        """Tell each who is to be called."""
        modules, steps, calls, eye = self.modules, self._steps, self._calls, self.eye
        eye.owner = self
        modules.hooked, modules.recompute, modules.retention = self._hooked, self._recompute, self._retention
        modules.on_stray, self.leaves.on_stray = self._strays.module, self._strays.leaf
        modules.on_root, modules.on_outermost = self.leaves.scan, self._forward_begins
        steps.on_optimizer = self._optimizing
        calls.on_call, calls.on_graph = self._retention.backward_came, self._graph_known
        calls.on_over = self._call_over
        eye.on_raise = self._op_raised
        eye.on_error = modules.on_error = steps.on_error = calls.on_error = self.broke

    # On and off

    def start(self) -> None:
        self._cost.begin()
        self.special.pid = os.getpid()
        self.first = private.next_sequence_nr()
        self.resume()

    def resume(self) -> None:
        """Attach. Does nothing where it is attached already."""
        if self._entered or self.error is not None:
            return
        self.modules.start()
        self._steps.start()
        self._attention.begin_step(self._steps.index, self.settings)
        # Said for hooks that do something with what they get; ours tell an OptimizedModule from the module inside it.
        warnings.filterwarnings("ignore", message=GLOBAL_HOOKS)
        self._filter = warnings.filters[0]
        self.eye.__enter__()
        private.show_backward(self.eye)
        self._entered = self.special.on = True
        self._asked.start()

    def pause(self) -> None:
        """Detach, and keep what is known for ``resume``."""
        if not self._entered:
            return
        self._entered = self.special.on = False
        self._asked.pause()
        private.unshow_backward(self.eye)
        self.eye.__exit__(None, None, None)
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
        self.eye.flush()
        self._steps.pause()
        self.modules.stop()

    def leave(self) -> None:
        """In a forked child: take off what the parent had put on, without finishing anything."""
        self.special.pid = os.getpid()
        self._calls.leave()
        private.unshow_backward(self.eye)
        private.drop_mode(self.eye)
        self._asked.pause()
        self._entered = self.special.on = False
        self.modules.stop()
        self._steps.remove()

    def stop(self) -> None:
        """Detach for good: the last step is over, and nothing of the graph is held any longer."""
        ended = self._entered
        self.pause()
        if ended:
            self._asked.check(self._created.any)
        self._steps.stop()
        self.ranks.stop()

    def broke(self, error: BaseException) -> None:
        """Something of ours failed. The script goes on as it would alone; we stop watching, and say so."""
        if self.error is None:
            self.error = error
        self.special.on = False
        self.eye.noting = False
        self.modules.stop()
        self._steps.pause()

    # What happens

    def _forward_begins(self) -> None:
        self.ranks.forward_begins()
        if self._steps.stepped:
            self._steps.finish()
        elif not self._calls.count and not self._calls.inside:
            self._retention.next_round(forward_only=True)

    def _step_over(self, step: Step) -> None:
        begin = _clock()
        self.sink.step(step, self)
        self._cost.watching += _clock() - begin
        self._cost.step_over()
        self.eye.log.trim()
        self._retention.next_round(False, max(1, len(self._steps.stepped_by)))
        self.modules.new_step(self._steps.index)
        self._attention.begin_step(self._steps.index, self.settings)
        self._asked.begin_step(self._steps.index)

    def _optimizing(self, optimizer: Any, begins: bool) -> None:
        self.eye.optimizing = begins
        if begins:
            self._asked.stepping(optimizer)
        if begins or not self.eye.noting:
            return
        spot, seq = self.frames.spot(sys._getframe(2)), private.next_sequence_nr()
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.eye.writes.add(p, seq, f"{type(optimizer).__name__}.step", spot, None)

    def _op_raised(self, text: str, frame: Any, args: Any) -> None:
        """An op of the forward raised: for a reason that we know?"""
        self._hooked.conflict(text, frame, args)
        self._no_gradients.op_raised(text, frame)

    def _graph_known(self, running: Running, frame: Any) -> None:
        self._created.note(running)
        self._silent.look(running, frame)
        self._memory.look(running, frame, self.origins)

    def _call_over(self, running: Running) -> None:
        recorded = self._outcome.of(running)
        self._cost.nodes += len(recorded.signature.order)
        self.sink.backward(recorded)
        if self._log is not None:
            self._log.write(recorded, running.graph.nodes)

    # What is known

    @property
    def calls(self) -> int:
        """Backward calls so far."""
        return self._calls.count

    @property
    def cost(self) -> float:
        """What watching has cost so far as a share of the steps' own time, estimated."""
        return self._cost.share

    def origins(self) -> Origins:
        """Where the nodes of a graph were made, as far as it was recorded."""
        log = self.eye.log
        first = max(self.first, log.ends[0]) if log.dropped and log.ends else self.first
        return Origins(log.ends, log.entries, self.modules, self.frames, first, 0)

    def facts(self) -> Facts:
        """What is known of the run as a whole, so far."""
        seen = (
            *self._regions.cuts(self.names),
            *self.eye.cuts.records(self.names),
            *self._strays.records(self._steps.listed),
            *self._steps.records(self.names),
            *self._no_gradients.records(),
            *self._hooked.records(),
            *self._recompute.records(),
            *([self._retention.found] if self._retention.found is not None else ()),
            *self._asked.functions,
            *self._asked.divergences,
            *self._memory.rows,
            *self._silent.found,
            *self._created.records(),
            *self._regions.records(),
            *self._calls.stale.records(),
            *self.ranks.records(),
            *self._asked.gradients,
            *(self._asked.tensors.records if self._asked.tensors is not None else ()),
            *([self._memory.record] if self._memory.record is not None else ()),
        )
        parameters = self.leaves.parameters(self._steps.listed, self._steps.present)
        return Facts(parameters, self.unseen(), tuple(sorted(self.settings.ask)), seen)

    def unseen(self) -> tuple[Unseen, ...]:
        """What was not observed, counted."""
        failed = []
        if self.error is not None:
            text = f"{type(self.error).__name__}: {self.error}"
            failed = [Unseen("internal error", 1, f"backprobe stopped watching there, the script went on: {text}")]
        watching = (self._calls.layouts, self.modules, self.eye.log, self.eye.values, self.leaves)
        return (*self._asked.unseen(), *failed, *(found for one in watching for found in one.unseen()))
