"""Where a backward stops, over all calls of a debugger. The native engine runs them; hooks on every node (``Control``)
ask here whether to wait.

Note [Stopping in the engine's own thread]: A hook stops right where it is called. What waits there (a prompt, a
callback, another thread that gives commands) is the business of ``Pilot.on_stop``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import BackprobeError
from ..torch_internals.walk import Plans
from .backward_graph import BackwardGraph
from .breakpoints import Breakpoint, NamedNodes
from .conditions import holds
from .resume import CONTINUE, Resume
from .rewind import Journal, Rewind
from .stop import Stop


class BackwardAborted(BackprobeError):
    """A person ended a backward at a stop. Gradients that were accumulated until there are kept."""


class StopController:
    """Decides where to stop, over all backward calls of a debugger.

    :param on_stop: called at a stop, in the engine's thread; returns how to go on.
    :param resume: how the first call begins; later how the last stop said to go on.
    """

    def __init__(self, on_stop: Callable[[Stop], Resume], resume: Resume) -> None:
        self.on_stop, self._resume = on_stop, resume
        self.breakpoints: list[Breakpoint] = []
        self._numbered = 0
        #: Counts changes of what is to be done at nodes; see Note [One hook a node].
        self.version = 0
        #: The calls that are running, innermost last.
        self.calls: list[BackwardGraph] = []
        self._interrupted = False
        #: Whether a stop waits for a command now.
        self.asking = False
        #: Runs around a node that may call backward itself; returns what to call after it.
        self.around_python: Callable[[], Callable[[], None]] | None = None
        #: More nodes of that kind than those of Python functions.
        self.within: Callable[[list[int]], Iterable[int]] = lambda seqs: ()
        #: Told about breakpoints that fit no node of a call that begins.
        self.on_begin: Callable[[BackwardGraph], None] | None = None
        #: The error that was stopped for, or that is not the backward's.
        self.mourned: BaseException | None = None
        #: Of the outermost call, where its graph is kept.
        self.journal: Journal | None = None
        self.plans = Plans()

    @property
    def resume(self) -> Resume:
        """How to go on."""
        return self._resume

    @resume.setter
    def resume(self, resume: Resume) -> None:
        self._resume = resume
        self.version += 1

    @property
    def interrupted(self) -> bool:
        """Set from elsewhere to stop at the next node."""
        return self._interrupted

    @interrupted.setter
    def interrupted(self, on: bool) -> None:
        self._interrupted = on
        self.version += 1

    def _changed(self) -> None:
        self.version += 1

    def add(self, point: Breakpoint) -> Breakpoint:
        self._numbered += 1
        point.number, point.owner, point.tell = self._numbered, self.breakpoints, self._changed
        self.breakpoints.append(point)
        self._changed()
        return point

    def rewind(self, stop: Stop, stops: int) -> Resume:
        """How to go on from `stop` to go back to an earlier one.

        :raises BackprobeError: it cannot be done, with the reason.
        """
        if self.journal is None:
            raise BackprobeError(
                "cannot go back: this backward does not keep its graph, and what has run is freed; call it with "
                "retain_graph=True, or use backprobe.replay(loss), which goes back and forth"
            )
        self.journal.choose(stop.phase, stops)
        return Resume("back")

    def stop_at(self, named: NamedNodes, i: int, before: bool, incoming: Any, outgoing: Any) -> Stop | None:
        """A stop before or after node `i`, if there is to be one."""
        graph, phase = named.graph, "before" if before else "after"
        found: Stop | None = None
        if self.interrupted:
            self.interrupted = False
            found = Stop(graph, i, phase, incoming, outgoing, "interrupted")
        for point in self.breakpoints[:]:
            if not point.enabled or not named.concerns(point, i, before):
                continue
            stop = found or Stop(graph, i, phase, incoming, outgoing)
            raised = ""
            try:
                if not holds(point, stop):
                    continue
                point.hits += 1
                if point.hits < point.count:
                    continue
            except Exception as error:  # of the condition's: a person has to know, and it would raise at every node
                point.disable()
                raised = f"; its condition raised {type(error).__name__}: {error}; it is disabled now"
            text = f"breakpoint {point.number}: {point}{raised}"
            if point.temporary:
                point.remove()
            if found is None or found.breakpoint is None:
                stop.breakpoint, stop.reason = point, text
            found = stop
        if found is None and self.resume.stops(graph, i, before):
            why = {"module": "next module", "out": "left the module", "after": "it has run"}
            found = Stop(graph, i, phase, incoming, outgoing, why.get(self.resume.kind, "step"))
        return found

    def wait(self, stop: Stop) -> None:
        """Wait at `stop` for how to go on; see Note [Stopping in the engine's own thread].

        :raises BackwardAborted: to end the backward.
        """
        try:
            self.asking = True
            try:
                if self.journal is not None:
                    self.journal.stopped()
                self.resume = self.on_stop(stop)
            finally:
                self.asking = False
            if self.resume.kind == "back":
                raise Rewind
            if self.resume.kind == "abort":
                self.resume = CONTINUE
                raise BackwardAborted(
                    f"the backward was aborted {stop.phase} {stop.node.label}; gradients that were accumulated until "
                    "there are kept"
                )
        except BaseException as error:
            self.mourned = error  # a person's, not the backward's: no stop for it
            raise
