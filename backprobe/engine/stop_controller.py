"""Decides where a backward stops, over all calls of a debugger.

The native engine runs the calls; hooks on every node (``Control``) ask here whether to wait.

Note [Stopping in the engine's own thread]: A hook stops right where it is called. ``StopController.on_stop`` decides
what waits there: a prompt, a callback, another thread that issues commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..basics.errors import BackprobeError
from ..torch_internals.walk import Plans
from .backward_graph import BackwardGraph
from .breakpoints import Breakpoint, NamedNodes
from .conditions import holds
from .resume import CONTINUE, Resume
from .rewind import Journal, Rewind
from .stop import Stop


class BackwardAborted(BackprobeError):
    """The user ended a backward at a stop. Gradients accumulated until then are kept."""


class StopController:
    """Decides where to stop, over all backward calls of a debugger.

    :param on_stop: called at a stop, in the engine's thread; returns how to resume.
    :param resume: how the first call begins; later the last stop's answer.
    """

    def __init__(self, on_stop: Callable[[Stop], Resume], resume: Resume) -> None:
        """Begin without breakpoints and without running calls."""
        self.on_stop, self._resume = on_stop, resume
        self.breakpoints: list[Breakpoint] = []
        self._numbered = 0
        #: Counts changes to the set of nodes to act on; see Note [One hook a node].
        self.version = 0
        #: The running calls, innermost last.
        self.calls: list[BackwardGraph] = []
        self._interrupted = False
        #: Whether a stop is waiting for a command.
        self.asking = False
        #: Runs before a node that may call backward itself; returns a callable to run after it.
        self.around_python: Callable[[], Callable[[], None]] | None = None
        #: Returns nodes that may call backward, in addition to those of Python functions.
        self.within: Callable[[list[int]], Iterable[int]] = lambda seqs: ()
        #: Receives the graph of each call that begins, to report breakpoints that match no node of it.
        self.on_begin: Callable[[BackwardGraph], None] | None = None
        #: The error that was already reported at a stop, or that did not come from the backward.
        self.reported_error: BaseException | None = None
        #: The journal of the outermost call, if its graph is kept.
        self.journal: Journal | None = None
        self.plans = Plans()

    @property
    def resume(self) -> Resume:
        """The command with which the backward resumes."""
        return self._resume

    @resume.setter
    def resume(self, resume: Resume) -> None:
        self._resume = resume
        self.version += 1

    @property
    def interrupted(self) -> bool:
        """Set from another thread or a signal handler to stop at the next node."""
        return self._interrupted

    @interrupted.setter
    def interrupted(self, on: bool) -> None:
        self._interrupted = on
        self.version += 1

    def _changed(self) -> None:
        """Count a change of the breakpoints, so that the hooks choose anew the nodes to act on."""
        self.version += 1

    def add(self, point: Breakpoint) -> Breakpoint:
        """Give `point` a number, add it to the breakpoints, and return it."""
        self._numbered += 1
        point.number, point.owner, point.tell = self._numbered, self.breakpoints, self._changed
        self.breakpoints.append(point)
        self._changed()
        return point

    def rewind(self, stop: Stop, stops: int) -> Resume:
        """Return how to resume from `stop` to go back to an earlier one.

        :raises BackprobeError: it is impossible, with the reason.
        """
        if self.journal is None:
            raise BackprobeError(
                "cannot go back: this backward does not keep its graph, and what has run is freed. Start with "
                "'backprobe debug --retain', or call it with retain_graph=True, or use backprobe.replay(loss), which "
                "goes back and forth"
            )
        self.journal.choose(stop.phase, stops)
        return Resume("back")

    def stop_at(self, named: NamedNodes, i: int, before: bool, incoming: object, outgoing: object) -> Stop | None:
        """Return a stop before or after node `i`, if there is a reason for one."""
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
            except Exception as error:  # the condition raised: report it, as it would raise at every node
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
        """Wait at `stop` for the answer; see Note [Stopping in the engine's own thread].

        :raises BackwardAborted: the answer was to end the backward.
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
            self.reported_error = error  # raised by the user's code at the stop, not by the backward: no stop for it
            raise
