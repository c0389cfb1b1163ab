"""Where a backward stops. The native engine runs it; hooks on every node ask here whether to wait.

Note [Stopping in the engine's own thread]: A hook stops right where it is called. What waits there (a prompt, a
callback, another thread that gives commands) is the business of ``Pilot.on_stop``.

Note [Hooks of one call]: A hook answers only to its own call. A backward that a user's hook runs over the same nodes
has another number (``private.graph_task``), and a higher one; one that began before ours, in another thread, has a
lower one than a call that we make just before.

Note [Holding incoming gradients]: The incoming gradients are held while their node runs, so that they can be looked at
where it raises. Not for an accumulator, which would have to copy them.

Note [Hooks go with the call]: All hooks go when it is over, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import BackprobeError
from ..torchside import private
from .backward_graph import BackwardGraph
from .breakpoints import Breakpoint, NamedNodes
from .conditions import holds
from .provenance import Forward
from .resume import CONTINUE, Resume
from .rewind import Journal, Rewind
from .stop import Stop

_task = private.graph_task


class BackwardAborted(BackprobeError):
    """A person ended a backward at a stop. Gradients that were accumulated until there are kept."""


class Pilot:
    """Decides where to stop, over all backward calls of a debugger.

    :param on_stop: called at a stop, in the engine's thread; returns how to go on.
    :param resume: how the first call begins; later how the last stop said to go on.
    """

    def __init__(self, on_stop: Callable[[Stop], Resume], resume: Resume) -> None:
        self.on_stop, self.resume = on_stop, resume
        self.breakpoints: list[Breakpoint] = []
        self._numbered = 0
        #: The calls that are running, innermost last.
        self.calls: list[Control] = []
        #: Set from elsewhere to stop at the next node.
        self.interrupted = False
        #: Whether a stop waits for a command now.
        self.asking = False
        #: Runs around a node that may call backward itself; returns what to call after it.
        self.around_python: Callable[[], Callable[[], None]] | None = None
        #: Told about breakpoints that fit no node of a call that begins.
        self.on_begin: Callable[[BackwardGraph], None] | None = None
        self._mourned: BaseException | None = None
        #: Of the outermost call, where its graph is kept.
        self.journal: Journal | None = None

    def add(self, point: Breakpoint) -> Breakpoint:
        self._numbered += 1
        point.number = self._numbered
        point._owner = self.breakpoints
        self.breakpoints.append(point)
        return point

    def run(self, kind: str, args: Any, kwargs: Any, proceed: Callable[[], Any], forward: Forward) -> Any:
        """One backward call: `proceed` makes it, and we stop inside."""
        if self.resume.kind == "finish":
            return proceed()
        try:
            with private.unseen():
                graph = BackwardGraph(kind, args, kwargs, forward, len(self.calls) + 1)
        except TypeError:  # wrong use: torch says so
            return proceed()
        control = Control(self, graph)
        if graph.depth == 1 and self.on_begin is not None:
            self.on_begin(graph)
        if graph.depth == 1 and graph.retained:
            self.journal = Journal(graph)
        depth = private.mode_depth()
        self.calls.append(control)
        try:
            control.attach()
            while True:
                try:
                    return proceed()
                except BaseException as error:
                    while private.mode_depth() > depth:
                        private.pop_function_mode()
                    if not self._again(control, error):
                        raise
                control.begin_again()
        finally:
            self.calls.pop()
            if not self.calls:
                self._mourned = self.journal = None
            control.detach()
            graph.release()

    def _again(self, control: Control, error: BaseException) -> bool:
        """Whether a call that has ended with `error` is to begin again, to go back in it."""
        if isinstance(error, Rewind):
            return control.graph.depth == 1
        if self.journal is not None:
            self.journal.target = None
        if self._mourned is not error and isinstance(error, Exception):
            self._mourned = error
            control.mourn(error)
        if self.resume.kind != "back":
            return False
        if control.graph.depth > 1:
            raise Rewind from error
        return True

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
        for point in self.breakpoints[:] if self.breakpoints else ():
            if not point.enabled or not named.concerns(point, i, before):
                continue
            stop = found or Stop(graph, i, phase, incoming, outgoing)
            text = f"breakpoint {point.number}: {point}"
            try:
                if not holds(point, stop):
                    continue
                point.hits += 1
                if point.hits < point.count:
                    continue
            except Exception as error:  # of the condition's: a person has to know, and it would raise at every node
                point.disable()
                text += f"; its condition raised {type(error).__name__}: {error}; it is disabled now"
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
            self._mourned = error  # a person's, not the backward's: no stop for it
            raise


class Control:
    """The hooks on one backward call."""

    def __init__(self, pilot: Pilot, graph: BackwardGraph) -> None:
        self.pilot, self.graph = pilot, graph
        self.running: int | None = None
        self._incoming: Any = None
        self._number = -1
        self._before = private.last_graph_task()
        self._dicts: list[Any] = []
        self._leave: list[Callable[[], None]] = []
        self._named = NamedNodes(graph)
        self._leaves = frozenset(graph.plan.leaves)
        function = torch.autograd.function.BackwardCFunction
        self._python = frozenset(i for i, n in enumerate(graph.nodes) if isinstance(n, function))

    def attach(self) -> None:
        for i, node in enumerate(self.graph.nodes):
            if self.graph.runs(i):
                for handle in (node.register_prehook(_Before(self, i)), node.register_hook(_After(self, i))):
                    self._dicts.append((handle.hooks_dict_ref(), handle.id))

    def detach(self) -> None:
        """See Note [Hooks go with the call]."""
        while self._dicts:
            hooks, number = self._dicts.pop()
            hooks.pop(number, None)
        self._incoming = None

    def before(self, i: int, grads: Any) -> Any:
        number = _task()
        if number != self._number:
            if number <= self._before or 0 <= self._number < number:
                return None  # see Note [Hooks of one call]
            self._number = number
        self.running = i
        pilot = self.pilot
        if i not in self._leaves:
            self._incoming = grads  # see Note [Holding incoming gradients]
        elif pilot.journal is not None:
            pilot.journal.keep(self.graph.nodes[i].variable)
        new = None
        if pilot.resume.kind != "finish" or pilot.interrupted:
            new = self._event(i, True, grads, None)
            if new is not None and self._incoming is not None:
                self._incoming = new
        if i in self._python and pilot.around_python is not None:
            self._leave.append(pilot.around_python())
        return new

    def after(self, i: int, grad_inputs: Any, grad_outputs: Any) -> Any:
        if _task() != self._number:
            return None
        if i in self._python and self._leave:
            self._leave.pop()()
        self.running, self._incoming = None, None
        self.graph.ran.append(i)
        self.graph.done.add(i)
        pilot = self.pilot
        if pilot.resume.kind == "finish":
            return None
        return self._event(i, False, grad_outputs, grad_inputs)

    def _event(self, i: int, before: bool, incoming: Any, outgoing: Any) -> Any:
        """Stop here if there is a reason; the gradients to go on with, where they were replaced."""
        pilot, journal = self.pilot, self.pilot.journal
        stop: Stop | None
        if journal is not None:
            journal.tick()
            if journal.under_way:
                return journal.edits()
        if journal is not None and journal.target is not None:
            journal.target = None
            stop = Stop(self.graph, i, "before" if before else "after", incoming, outgoing, "back")
        else:
            stop = pilot.stop_at(self._named, i, before, incoming, outgoing)
        if stop is None:
            return None
        new = None
        try:
            pilot.wait(stop)
        finally:
            new = stop.close()
        if new is not None and journal is not None:
            journal.edited(new)
        return new

    def begin_again(self) -> None:
        """The call has ended, and is to go back to an earlier stop; see Note [Going back in the engine]."""
        pilot = self.pilot
        assert pilot.journal is not None
        pilot.journal.restore()
        pilot.resume, pilot._mourned = CONTINUE, None
        self.running, self._incoming, self._number = None, None, -1
        self._before = private.last_graph_task()
        self._leave.clear()
        self.graph.ran.clear()
        self.graph.done.clear()

    def mourn(self, error: BaseException) -> None:
        """The backward raised: stop where it happened, if a node had begun."""
        graph = self.graph
        at, how = self.running, "raised"
        if at is None and graph.ran:
            ready = graph.ready()
            at, how = (ready[0] if ready else graph.ran[-1]), "raised before it began, in a hook"
        if at is None or self.pilot.resume.kind == "finish":
            return
        why = f"{how}: {type(error).__name__}: {error}"
        stop = Stop(graph, at, "exception", self._incoming, None, why)
        stop.error = error
        pilot = self.pilot
        pilot.asking = True
        try:
            pilot.resume = pilot.on_stop(stop)
            if pilot.resume.kind == "abort":  # it has ended already
                pilot.resume = CONTINUE
        finally:
            pilot.asking = False
            stop.close()


class _Before:
    """A hook that knows its node's number."""

    __slots__ = ("control", "i")

    def __init__(self, control: Control, i: int) -> None:
        self.control, self.i = control, i

    def __call__(self, grad_outputs: Any) -> Any:
        return self.control.before(self.i, grad_outputs)


class _After(_Before):
    __slots__ = ()

    def __call__(self, grad_inputs: Any, grad_outputs: Any) -> Any:  # type: ignore[override]
        return self.control.after(self.i, grad_inputs, grad_outputs)
