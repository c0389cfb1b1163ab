"""Hooks on one backward call: they report each node to the ``StopController``, and wait if it decides to stop.

Note [Hooks of one call]: A hook reacts only to its own call. A backward that a user's hook runs over the same nodes has
another, higher number (``private.graph_task``). A call that began earlier, in another thread or around ours, has a
lower one. If such a call is possible, we make a tiny call just before ours: its number is the limit.

Note [Holding incoming gradients]: The incoming gradients are held while their node runs, so that they can be inspected
if it raises. This does not apply to an accumulator, which would then have to copy them.

Note [Hooks go with the call]: All hooks are removed when the call ends, however it ends.

Note [One hook a node]: Every node has a prehook, which also implies that the previous node has run. A posthook is added
to nodes after which a breakpoint can stop, to Python nodes (a mode is popped there), and to all nodes of a call that
can go back (Note [Going back in the engine]). The set of nodes to act on is recomputed when the plan has changed: a
breakpoint, or the way to resume.

Note [Whose error]: If a node has no posthook, an error may come from a hook between it and the next node. It is the
node's own error if no Python code ran at all, or if the Python code belongs to the node: a posthook, an unpack hook of
a saved tensor, a dispatch mode.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..ops import info
from ..records import ACCUMULATE_SEQ
from ..torch_internals import code_objects, private
from ..torch_internals.recursion_limit import STEPPED, Room
from .backward_graph import BackwardGraph
from .breakpoints import Breakpoint, NamedNodes
from .condition_prefilter import ConditionPrefilter, look_of
from .nested import runs_python
from .provenance import Forward
from .resume import CONTINUE
from .rewind import Journal, Rewind
from .single import hooks_of
from .stop import Stop
from .stop_controller import StopController

if TYPE_CHECKING:
    import torch

_task = private.graph_task

#: Returns an explanation of an error of a call, given the nodes that have run.
Explain = Callable[[BaseException, Sequence[int]], Sequence[str]]


def _gives_what_comes(name: str) -> bool:
    """Return whether a node of this name passes its incoming gradient on, at most in another shape."""
    row = info(name)
    return row.reshapes or row.name in ("add", "sub")


class Control:
    """The hooks on one backward call."""

    def __init__(self, pilot: StopController, graph: BackwardGraph, explain: Explain | None = None) -> None:
        """Prepare the hooks on `graph`; ``attach`` registers them."""
        self.pilot, self.graph, self.explain = pilot, graph, explain
        self.running: int | None = None
        self._incoming: Any = None
        self._number = -1
        self._before = private.last_earlier_graph_task()
        self._hooks = private.NodeHooks()
        #: The bound hooks, kept because they are identified by object.
        self._before_hook, self._after_hook = self.before, self.after
        self._leave: list[Callable[[], None]] = []
        self._named = NamedNodes(graph)
        self._leaves = frozenset(graph.plan.leaves)
        python = set(pilot.within(graph.seqs))
        if any(map(runs_python, set(map(type, graph.nodes)))):
            python.update(i for i, node in enumerate(graph.nodes) if runs_python(type(node)))
        self._python = frozenset(i for i in python if graph.runs(i))
        #: Nodes with a posthook; nodes before (after) which an action is due; and the plan's version for which both
        #: hold.
        self._followed: set[int] = set()
        self._at_before: Container[int] = ()
        self._at_after: Container[int] = ()
        self._version = -1
        #: Nodes before (after) which a cheap prefilter of conditions runs first.
        self._sifted_before: set[int] = set()
        self._sifted_after: set[int] = set()
        #: Those of ``_sifted_after`` that only reshape their incoming gradient: if the prefilter excludes a stop before
        #: the node, it needs none after it, and no posthook.
        self._reshaping: set[int] = set()
        self._sieve = ConditionPrefilter(())
        self._sifts = not graph.create_graph and not private.in_mode()

    def attach(self) -> None:
        """Register the hooks on all nodes that run, and plan at which of them to act."""
        runs = self.graph.runs
        nodes, before = enumerate(self.graph.nodes), self._before_hook
        self._hooks.put((node.register_prehook, partial(before, i)) for i, node in nodes if runs(i))
        self._follow(self._python)
        self._replan()

    def _follow(self, nodes: Iterable[int]) -> None:
        """Register hooks that run after these nodes, where there are none yet."""
        graph = self.graph
        new = {i for i in nodes if i not in self._followed and graph.runs(i)}
        if new:
            self._followed |= new
            self._hooks.put((graph.nodes[i].register_hook, partial(self._after_hook, i)) for i in new)

    def _replan(self) -> None:
        """Recompute before and after which nodes the hooks must look for a stop: breakpoints or the command have
        changed.
        """
        pilot = self.pilot
        self._version = pilot.version
        every = range(len(self.graph.nodes))
        self._sifted_before = self._sifted_after = self._reshaping = set()
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
            names = self.graph.plan.names
            self._sifted_before = self._nodes(sifted, True)
            self._sifted_after = self._nodes(sifted, False) - self._leaves  # nothing goes out of those
            both = self._sifted_before & self._sifted_after - self._followed - self._python
            self._reshaping = {i for i in both if info(names[i]).reshapes}
        self._follow(after | self._sifted_after - self._reshaping)
        if sifted:
            others = {hook.args[0] for hook in self._hooks.beside}
            still = (i for i in self._sifted_after if _gives_what_comes(names[i]) and i not in others)
            self._sieve = ConditionPrefilter(sifted, frozenset(still))

    def _nodes(self, points: Sequence[Breakpoint], before: bool) -> set[int]:
        """Return the nodes before (after) which one of `points` can stop."""
        return {i for point in points for i in self._named.hooked(point, before)}

    def detach(self) -> None:
        """Remove all hooks; see Note [Hooks go with the call]."""
        self._hooks.remove()
        self._incoming = None
        del self._before_hook, self._after_hook  # bound to us: a cycle would wait for the collector

    def _begins(self) -> bool:
        """Return whether the hook that is running is the first of our backward call, and not of a call nested in it."""
        number = _task()
        if number <= self._before or 0 <= self._number < number:
            return False
        self._number = number
        return True

    def before(self, i: int, grads: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...] | None:
        """Act before node `i` runs: stop if there is a reason. A prehook.

        :returns: gradients that replace the incoming ones; ``None`` to leave them.
        """
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
            if i in self._reshaping:
                self._follow((i,))
            new = self._event(i, True, grads, None)
            if new is not None and self._incoming is not None:
                self._incoming = new
            if pilot.version != self._version:
                self._replan()
        if i in self._python and pilot.around_python is not None:
            self._leave.append(pilot.around_python())
        return new

    def after(
        self, i: int, grad_inputs: Sequence[torch.Tensor | None], grad_outputs: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor | None, ...] | None:
        """Act after node `i` has run: stop if there is a reason. A posthook.

        :returns: gradients that replace the outgoing ones; ``None`` to leave them.
        """
        if _task() != self._number:
            return None
        if i in self._python and self._leave:
            self._leave.pop()()
        self.running, self._incoming = None, None
        self.graph.ran.append(i)
        if self.pilot.version != self._version:
            self._replan()
        if i not in self._at_after and not (
            i in self._sifted_after and self._sieve.after(i, grad_inputs, grad_outputs)
        ):
            return None
        return self._event(i, False, grad_outputs, grad_inputs)

    def _event(
        self, i: int, before: bool, incoming: object, outgoing: object
    ) -> tuple[torch.Tensor | None, ...] | None:
        """Look for a reason to stop before or after node `i`, and wait for a command if there is one.
        :returns: the gradients with those that the user replaced; ``None`` if none was.
        """
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
        """Undo the effects of the call that has ended, and reset, so that it can run again up to an earlier stop."""
        pilot = self.pilot
        assert pilot.journal is not None
        pilot.journal.restore()
        pilot.resume, pilot.reported_error = CONTINUE, None
        self.running, self._incoming, self._number = None, None, -1
        self._before = private.last_earlier_graph_task()
        self._leave.clear()
        self.graph.ran.clear()

    def stop_at_error(self, error: BaseException) -> None:
        """Stop at the node where the backward raised `error`, to let the user inspect it; not if no node had begun."""
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


def run(
    pilot: StopController,
    kind: str,
    args: object,
    kwargs: object,
    proceed: Callable[[], object],
    forward: Forward,
    begins: Callable[[BackwardGraph], int | None] = lambda graph: None,
    explain: Explain | None = None,
) -> object:
    """Run one backward call with `proceed`, and stop inside it if `pilot` says so.

    :param begins: receives the call's graph; returns the training step.
    :param explain: explains an error, given the nodes that have run.
    """
    if pilot.resume.kind == "finish" or private.compiles_backward():  # compiled calls include the hooks on their nodes
        return proceed()
    graph = None
    try:
        with private.disable_function_modes():
            graph = BackwardGraph(kind, args, kwargs, forward, len(pilot.calls) + 1, pilot.plans)
    except TypeError:
        pass
    if graph is None:  # wrong use: torch raises its own error
        return proceed()
    graph.step = begins(graph)
    control = Control(pilot, graph, explain)
    if graph.depth == 1 and pilot.on_begin is not None:
        pilot.on_begin(graph)
    if graph.depth == 1 and graph.retained:
        pilot.journal = Journal(graph)
    depth = private.mode_depth()
    room = Room(STEPPED)
    pilot.calls.append(graph)
    try:
        room.begin()
        control.attach()
        while True:
            try:
                return proceed()
            except BaseException as error:
                while private.mode_depth() > depth:
                    private.pop_function_mode()
                if not _again(pilot, control, error):
                    raise
            control.begin_again()
    finally:
        pilot.calls.pop()
        room.end()
        if not pilot.calls:
            pilot.reported_error = pilot.journal = None
        control.detach()
        graph.release()


def _again(pilot: StopController, control: Control, error: BaseException) -> bool:
    """Return whether a call that ended with `error` must begin again, to go back in it."""
    if isinstance(error, Rewind):
        return control.graph.depth == 1
    if pilot.journal is not None:
        pilot.journal.target = None
    if pilot.reported_error is not error and isinstance(error, Exception):
        pilot.reported_error = error
        control.stop_at_error(error)
    if pilot.resume.kind != "back":
        return False
    if control.graph.depth > 1:
        raise Rewind from error
    return True


def raised_by_another(node: Any, error: BaseException) -> bool:
    """Return whether `error` came from a hook after `node` had run; see Note [Whose error]."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    engine = max((k for k, code in enumerate(frames) if code is code_objects.ENGINE_CALL), default=len(frames))
    inside = frames[engine + 1 :]
    if not inside or any(code_objects.is_handler(code) for code in inside):
        return False
    hooks = [*hooks_of(node, node.register_hook).values()]
    if node._sequence_nr() == ACCUMULATE_SEQ:
        hooks += private.post_accumulate_hooks(node.variable).values()
    if any(getattr(hook, "__code__", None) in inside for hook in hooks):
        return False
    slots = [private.slot_content(slot) for _, slot in private.saved_slots(node)]
    return not any(content is not None and content[1] for content in slots)
