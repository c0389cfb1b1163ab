"""Where a backward stops. The native engine runs it; hooks on every node ask here whether to wait.

Note [Stopping in the engine's own thread]: A hook stops right where it is called. What waits there (a prompt, a
callback, another thread that gives commands) is the business of ``Pilot.on_stop``.

Note [Hooks of one call]: A hook answers only to its own call. A backward that a user's hook runs over the same nodes
has another number (``private.graph_task``), and a higher one; one that began before ours, in another thread, has a
lower one than a call that we make just before.

Note [Holding incoming gradients]: The incoming gradients are held while their node runs, so that they can be looked at
where it raises. Not for an accumulator, which would have to copy them.

Note [Hooks go with the call]: All hooks go when it is over, however it ends.

Note [One hook a node]: Every node has a hook before it, which tells that the node before has run. A hook after it is
put on where somebody wants to stop there, on Python nodes (a mode is left there), and everywhere in a call that can go
back (Note [Going back in the engine]). What is to be done at which node is worked out again when the plan has changed:
a breakpoint, or how to go on.

Note [Whose error]: Where a node has no hook after it, an error may be that of a hook between it and the next. It is
that of the node itself where no Python of anybody's ran, or where Python that belongs to the node did: a hook after it,
an unpacking hook of what it saved, a dispatch mode.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any

from ..errors import BackprobeError
from ..records import ACCUMULATE_SEQ
from ..torchside import places, private
from ..torchside.walk import Plans
from .backward_graph import BackwardGraph
from .breakpoints import Breakpoint, NamedNodes
from .conditions import holds
from .nested import is_python
from .provenance import Forward
from .resume import CONTINUE, Resume
from .rewind import Journal, Rewind
from .sieve import Sieve, look_of
from .single import hooks_of
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
        self.on_stop, self._resume = on_stop, resume
        self.breakpoints: list[Breakpoint] = []
        self._numbered = 0
        #: Counts changes of what is to be done at nodes; see Note [One hook a node].
        self.version = 0
        #: The calls that are running, innermost last.
        self.calls: list[Control] = []
        self._interrupted = False
        #: Whether a stop waits for a command now.
        self.asking = False
        #: Runs around a node that may call backward itself; returns what to call after it.
        self.around_python: Callable[[], Callable[[], None]] | None = None
        #: More nodes of that kind than those of Python functions.
        self.within: Callable[[list[int]], Iterable[int]] = lambda seqs: ()
        #: Told about breakpoints that fit no node of a call that begins.
        self.on_begin: Callable[[BackwardGraph], None] | None = None
        self._mourned: BaseException | None = None
        #: Of the outermost call, where its graph is kept.
        self.journal: Journal | None = None
        self._plans = Plans()

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

    def run(
        self,
        kind: str,
        args: Any,
        kwargs: Any,
        proceed: Callable[[], Any],
        forward: Forward,
        begins: Callable[[BackwardGraph], int | None] = lambda graph: None,
        explain: Explain | None = None,
    ) -> Any:
        """One backward call: `proceed` makes it, and we stop inside.

        :param begins: told of the call; returns the step of training.
        :param explain: what is made of an error, given the nodes that have run.
        """
        if self.resume.kind == "finish":
            return proceed()
        try:
            with private.unseen():
                graph = BackwardGraph(kind, args, kwargs, forward, len(self.calls) + 1, self._plans)
        except TypeError:  # wrong use: torch says so
            return proceed()
        graph.step = begins(graph)
        control = Control(self, graph, explain)
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
            self._mourned = error  # a person's, not the backward's: no stop for it
            raise


#: Says what is made of an error of a call, given the nodes that have run.
Explain = Callable[[BaseException, Sequence[int]], Sequence[str]]


class Control:
    """The hooks on one backward call."""

    def __init__(self, pilot: Pilot, graph: BackwardGraph, explain: Explain | None = None) -> None:
        self.pilot, self.graph, self.explain = pilot, graph, explain
        self.running: int | None = None
        self._incoming: Any = None
        self._number = -1
        self._before = private.last_graph_task()
        self._dicts: list[Any] = []
        self._leave: list[Callable[[], None]] = []
        self._named = NamedNodes(graph)
        self._leaves = frozenset(graph.plan.leaves)
        python = {i for i, name in enumerate(graph.plan.names) if "::" not in name and is_python(graph.nodes[i])}
        python.update(pilot.within(graph.seqs))
        self._python = frozenset(i for i in python if graph.runs(i))
        #: Nodes with a hook after them, those where something is to be done before (after) them, and the version of
        #: the plan that they are of.
        self._followed: set[int] = set()
        self._at_before: Container[int] = ()
        self._at_after: Container[int] = ()
        self._version = -1
        #: Nodes where a cheap look before (after) them comes first.
        self._sifted_before: set[int] = set()
        self._sifted_after: set[int] = set()
        self._sieve = Sieve(())
        self._sifts = not graph.create_graph and not private.in_mode()

    def attach(self) -> None:
        before, keep = self.before, self._dicts.append
        for i, node in enumerate(self.graph.nodes):
            if self.graph.runs(i):
                handle = node.register_prehook(partial(before, i))
                keep((handle.hooks_dict_ref(), handle.id))
        self._follow(self._python)
        self._replan()

    def _follow(self, nodes: Iterable[int]) -> None:
        """Put a hook after these nodes."""
        for i in nodes:
            if i not in self._followed and self.graph.runs(i):
                self._followed.add(i)
                handle = self.graph.nodes[i].register_hook(partial(self.after, i))
                self._dicts.append((handle.hooks_dict_ref(), handle.id))

    def _replan(self) -> None:
        """Work out what is to be done where; see Note [One hook a node]."""
        pilot = self.pilot
        self._version = pilot.version
        every = range(len(self.graph.nodes))
        self._sifted_before = self._sifted_after = set()
        kind = pilot.resume.kind
        if pilot.journal is not None:
            self._at_before = self._at_after = every
            self._follow(every)
            return
        if kind == "finish":
            self._at_before = every if pilot.interrupted else ()
            self._at_after = ()
            return
        enabled = [point for point in pilot.breakpoints if point.enabled]
        sifted = [point for point in enabled if self._sifts and look_of(point) is not None]
        asked = [point for point in enabled if point not in sifted]
        stepping = kind != "cont" or pilot.interrupted
        after = self._nodes(asked, False)
        if kind in ("into", "after"):
            after.update(i for i in (self.running, pilot.resume.node) if i is not None and i in every)
            after.update(self._python)
        self._at_after, self._at_before = after, every if stepping else self._nodes(asked, True)
        if sifted:
            self._sieve = Sieve(sifted)
            self._sifted_before, self._sifted_after = self._nodes(sifted, True), self._nodes(sifted, False)
        self._follow(after | self._sifted_after)

    def _nodes(self, points: Sequence[Breakpoint], before: bool) -> set[int]:
        """The nodes before (after) which one of `points` can stop."""
        return {i for point in points for i in self._named.hooked(point, before)}

    def detach(self) -> None:
        """See Note [Hooks go with the call]."""
        while self._dicts:
            hooks, number = self._dicts.pop()
            hooks.pop(number, None)
        self._incoming = None

    def _begins(self) -> bool:
        """Whether a hook that is called is the first of our call; see Note [Hooks of one call]."""
        number = _task()
        if number <= self._before or 0 <= self._number < number:
            return False
        self._number = number
        return True

    def before(self, i: int, grads: Any) -> Any:
        if _task() != self._number and not self._begins():
            return None
        if self.running is not None:
            self.graph.ran.append(self.running)
        self.running = i
        pilot = self.pilot
        if pilot.version != self._version:
            self._replan()
        if i in self._leaves:
            self._incoming = None  # see Note [Holding incoming gradients]
            if pilot.journal is not None:
                pilot.journal.keep(self.graph.nodes[i].variable)
        else:
            self._incoming = grads
        new = None
        if i in self._at_before or (i in self._sifted_before and self._sieve.before(grads)):
            new = self._event(i, True, grads, None)
            if new is not None and self._incoming is not None:
                self._incoming = new
            if pilot.version != self._version:
                self._replan()
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
        if self.pilot.version != self._version:
            self._replan()
        if i not in self._at_after and not (i in self._sifted_after and self._sieve.after(grad_inputs)):
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

    def mourn(self, error: BaseException) -> None:
        """The backward raised: stop where it happened, if a node had begun."""
        graph = self.graph
        at, how = self.running, "raised"
        if at is not None and at not in self._followed and raised_by_another(graph.nodes[at], error):
            graph.ran.append(at)
            at = None
        if at is None and graph.ran:
            ready = graph.ready()
            at, how = (ready[0] if ready else graph.ran[-1]), "raised before it began, in a hook"
        if at is None or self.pilot.resume.kind == "finish":
            return
        why = f"{how}: {type(error).__name__}: {error}"
        stop = Stop(graph, at, "exception", self._incoming, None, why)
        stop.error = error
        explain = self.explain
        if explain is not None:
            stop.explain = lambda: explain(error, graph.ran)
        pilot = self.pilot
        pilot.asking = True
        try:
            pilot.resume = pilot.on_stop(stop)
            if pilot.resume.kind == "abort":  # it has ended already
                pilot.resume = CONTINUE
        finally:
            pilot.asking = False
            stop.close()


def raised_by_another(node: Any, error: BaseException) -> bool:
    """Whether `error` came from a hook after `node` had run; see Note [Whose error]."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    engine = max((k for k, code in enumerate(frames) if code is places.ENGINE_CALL), default=len(frames))
    inside = frames[engine + 1 :]
    if not inside or any(places.is_handler(code) for code in inside):
        return False
    hooks = [*hooks_of(node, node.register_hook).values()]
    if node._sequence_nr() == ACCUMULATE_SEQ:
        hooks += private.post_accumulate_hooks(node.variable).values()
    if any(getattr(hook, "__code__", None) in inside for hook in hooks):
        return False
    slots = [private.slot_content(slot) for _, slot in private.saved_slots(node)]
    return not any(content is not None and content[1] for content in slots)
