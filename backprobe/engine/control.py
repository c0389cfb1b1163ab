"""Where a backward stops. The native engine runs it; hooks on every node ask here whether to wait.

E1. A hook stops right where it is called, in the engine's own thread. What waits there (a prompt, a callback, another
    thread that gives commands) is the business of ``Pilot.on_stop``.
E2. A hook answers only to its own call. A backward that a user's hook runs over the same nodes has another number
    (``private.graph_task``), and a higher one; one that began before ours, in another thread, has a lower one than
    a call that we make just before.
E3. The incoming gradients are held while their node runs, so that they can be looked at where it raises. Not for an
    accumulator, which would have to copy them.
E4. All hooks go when the call is over, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import BackprobeError
from ..torchside import private
from .breaks import Breakpoint
from .called import CallGraph
from .going import CONTINUE, Going
from .past import Past, Rewind
from .sight import Sight
from .stop import Stop

_task = private.graph_task


class BackwardAborted(BackprobeError):
    """A person ended a backward at a stop. Gradients that were accumulated until there are kept."""


class Pilot:
    """Decides where to stop, over all backward calls of a debugger.

    :param on_stop: called at a stop, in the engine's thread; returns how to go on.
    :param going: how the first call begins.
    """

    def __init__(self, on_stop: Callable[[Stop], Going], going: Going) -> None:
        self.on_stop, self.going = on_stop, going
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
        self.on_begin: Callable[[CallGraph], None] | None = None
        self._mourned: BaseException | None = None
        #: Of the outermost call, where its graph is kept.
        self.past: Past | None = None

    def add(self, point: Breakpoint) -> Breakpoint:
        self._numbered += 1
        point.number = self._numbered
        point._owner = self.breakpoints
        self.breakpoints.append(point)
        return point

    def run(self, kind: str, args: Any, kwargs: Any, proceed: Callable[[], Any], sight: Sight) -> Any:
        """One backward call: `proceed` makes it, and we stop inside."""
        if self.going.kind == "finish":
            return proceed()
        try:
            with private.unseen():
                graph = CallGraph(kind, args, kwargs, sight)
        except TypeError:  # wrong use: torch says so
            return proceed()
        control = Control(self, graph, len(self.calls) + 1)
        if control.depth == 1 and self.on_begin is not None:
            self.on_begin(graph)
        if control.depth == 1 and graph.retained:
            self.past = Past(graph)
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
                self._mourned = self.past = None
            control.detach()
            graph.release()

    def _again(self, control: Control, error: BaseException) -> bool:
        """Whether a call that has ended with `error` is to begin again, to go back in it."""
        if isinstance(error, Rewind):
            return control.depth == 1
        if self.past is not None:
            self.past.target = None
        if self._mourned is not error and isinstance(error, Exception):
            self._mourned = error
            control.mourn(error)
        if self.going.kind != "back":
            return False
        if control.depth > 1:
            raise Rewind from error
        return True

    def going_back(self, stop: Stop, stops: int) -> Going:
        """How to go on from `stop` to go back to an earlier one.

        :raises BackprobeError: it cannot be done, with the reason.
        """
        if self.past is None:
            raise BackprobeError(
                "cannot go back: this backward does not keep its graph, and what has run is freed; call it with "
                "retain_graph=True, or use backprobe.replay(loss), which goes back and forth"
            )
        self.past.choose(stop, stops)
        return Going("back")

    def reason(self, control: Control, i: int, before: bool, incoming: Any, outgoing: Any) -> Stop | None:
        """A stop if there is to be one."""
        going = self.going
        found: Stop | None = None
        if self.interrupted:
            self.interrupted = False
            found = control.make(i, before, incoming, outgoing)
            found.reason = "interrupted"
        for point in self.breakpoints[:] if self.breakpoints else ():
            if not point.enabled or not control.asks(point, i, before):
                continue
            stop = found or control.make(i, before, incoming, outgoing)
            text = f"breakpoint {point.number}: {point}"
            try:
                if not point.holds(stop):
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
        if found is None and going.stops(control, i, before):
            found = control.make(i, before, incoming, outgoing)
            found.reason = {"module": "next module", "out": "left the module", "after": "it has run"}.get(
                going.kind, "step"
            )
        return found

    def resume(self, stop: Stop) -> None:
        """Wait at `stop` for how to go on.

        :raises BackwardAborted: to end the backward.
        """
        try:
            self.asking = True
            try:
                if self.past is not None:
                    self.past.stopped()
                self.going = self.on_stop(stop)
            finally:
                self.asking = False
            if self.going.kind == "back":
                raise Rewind
            if self.going.kind == "abort":
                self.going = CONTINUE
                raise BackwardAborted(
                    f"the backward was aborted {stop.phase} {stop.node.label}; gradients that were accumulated until "
                    "there are kept"
                )
        except BaseException as error:
            self._mourned = error  # a person's, not the backward's: no stop for it
            raise


class Control:
    """The hooks on one backward call."""

    def __init__(self, pilot: Pilot, graph: CallGraph, depth: int) -> None:
        self.pilot, self.graph, self.depth = pilot, graph, depth
        self.running: int | None = None
        self._incoming: Any = None
        self._number = -1
        self._before = private.last_graph_task()
        self._dicts: list[Any] = []
        self._leave: list[Callable[[], None]] = []
        #: Breakpoint -> nodes that it names; for a module entered or left, its groups.
        self._named: dict[Breakpoint, Any] = {}
        self._leaves = frozenset(graph.plan.leaves)
        function = torch.autograd.function.BackwardCFunction
        self._python = frozenset(i for i, n in enumerate(graph.nodes) if isinstance(n, function))

    def attach(self) -> None:
        for i, node in enumerate(self.graph.nodes):
            if self.graph.runs(i):
                for handle in (node.register_prehook(_Before(self, i)), node.register_hook(_After(self, i))):
                    self._dicts.append((handle.hooks_dict_ref(), handle.id))

    def detach(self) -> None:
        while self._dicts:
            hooks, number = self._dicts.pop()
            hooks.pop(number, None)
        self._incoming = None
        self._named.clear()

    def before(self, i: int, grads: Any) -> Any:
        number = _task()
        if number != self._number:
            if number <= self._before or 0 <= self._number < number:
                return None  # E2
            self._number = number
        self.running = i
        pilot = self.pilot
        if i not in self._leaves:
            self._incoming = grads  # E3
        elif pilot.past is not None:
            pilot.past.keep(self.graph.nodes[i].variable)
        new = None
        if pilot.going.kind != "finish" or pilot.interrupted:
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
        if pilot.going.kind == "finish":
            return None
        return self._event(i, False, grad_outputs, grad_inputs)

    def _event(self, i: int, before: bool, incoming: Any, outgoing: Any) -> Any:
        """Stop here if there is a reason; the gradients to go on with, where they were replaced."""
        pilot, past = self.pilot, self.pilot.past
        if past is not None:
            past.tick()
            if past.under_way:
                return past.edits()
        if past is not None and past.target is not None:
            past.target = None
            stop: Stop | None = self.make(i, before, incoming, outgoing)
            assert stop is not None
            stop.reason = "back"
        else:
            stop = pilot.reason(self, i, before, incoming, outgoing)
        if stop is None:
            return None
        new = None
        try:
            pilot.resume(stop)
        finally:
            new = stop.close()
        if new is not None and past is not None:
            past.edited(new)
        return new

    def begin_again(self) -> None:
        """The call has ended, and is to go back to an earlier stop: all as before it began."""
        pilot = self.pilot
        assert pilot.past is not None
        pilot.past.restore()
        pilot.going, pilot._mourned = CONTINUE, None
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
        if at is None or self.pilot.going.kind == "finish":
            return
        stop = Stop(self, at, "exception", self._incoming, None)
        stop.error = error
        stop.reason = f"{how}: {type(error).__name__}: {error}"
        pilot = self.pilot
        pilot.asking = True
        try:
            pilot.going = pilot.on_stop(stop)
            if pilot.going.kind == "abort":  # it has ended already
                pilot.going = CONTINUE
        finally:
            pilot.asking = False
            stop.close()

    def make(self, i: int, before: bool, incoming: Any, outgoing: Any) -> Stop:
        return Stop(self, i, "before" if before else "after", incoming, outgoing)

    def asks(self, point: Breakpoint, i: int, before: bool) -> bool:
        """Whether `point` has to do with node `i` now, its condition apart."""
        named = self._named.get(point)
        if named is None:
            named = self._named[point] = self._find(point)
        if point.on is None:
            if point.phase == ("after" if before else "before"):
                return False
            return named is True or i in named
        groups = named.get(i)
        if groups is None or before is not (point.on == "enter"):
            return False
        done = self.graph.done
        return any(group.isdisjoint(done) if before else group <= done for group in groups)

    def _find(self, point: Breakpoint) -> Any:
        """The nodes that a breakpoint names; for a module that is entered or left, node -> the nodes of each module."""
        graph = self.graph
        if point.bare:
            return True
        fits = [i for i in range(len(graph)) if graph.runs(i) and point.fits(graph.infos[i])]
        if point.on is None:
            return frozenset(fits)
        modules: dict[str, set[int]] = {}
        for i in fits:
            for path in point.modules_of(graph.places[i].module):
                modules.setdefault(path, set()).add(i)
        groups: dict[int, list[frozenset[int]]] = {}
        for members in modules.values():
            frozen = frozenset(members)
            for i in frozen:
                groups.setdefault(i, []).append(frozen)
        return groups


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
