"""Backward calls: hooks the graph of each while it runs, and takes everything off when it is over."""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ...graphs.plan import engine_order
from ...records import BadNode
from ...source.frames import Spot
from ...torchside import private
from ...torchside.entry_points import EntryPoint, as_list, needed_nodes, node_of
from ...torchside.uncompiled import passes_on
from ...torchside.walk import LiveGraph, Plans, walk
from ..forward.eye import Eye
from ..forward.naming import Naming
from ..forward.regions import Regions
from ..forward.values import Values
from ..schedule.detail import Attention
from ..schedule.steps import StepWatch
from .inferred import culprit
from .layouts import Layouts, LiveLayout
from .node_hooks import Hooks
from .post_mortem import ran_before
from .recorded import Recorded
from .second import SecondOrder
from .watch import Look, PythonNodes, Watch

_clock = time.perf_counter


@dataclass
class Running:
    """A backward call that is going on.

    :ivar starts: the nodes of the roots, ``None`` for a root without one.
    :ivar inside: the call that this one is nested in.
    :ivar modes: what ``Eye.unwind`` goes back to.
    """

    kind: str
    arguments: dict[str, Any]
    roots: Sequence[Any]
    starts: list[Any]
    graph: LiveGraph
    live: LiveLayout
    index: int
    step: int
    inside: int | None
    spot: Spot | None
    modes: tuple[int, int]
    #: What a ``GradScaler`` multiplied the roots by: norms and losses are told without it.
    scale: float = 1.0
    watch: Watch = field(init=False)
    #: Nodes that a hook on their tensor enters the eye for: it is left before them.
    entered: set[int] = field(default_factory=set)
    began: float = 0.0
    #: The counter of nodes when it began.
    began_at: int = 0
    ended: float = 0.0
    error: BaseException | None = None

    @property
    def creates_graph(self) -> bool:
        return bool(self.arguments.get("create_graph"))

    def free(self) -> None:
        """Let go of all: a traceback may hold us for long, and the error holds its traceback."""
        self.error = None
        self.roots, self.starts, self.arguments = (), [], {}
        self.watch.release()
        del self.graph, self.watch


#: Leaves that stand for all of a graph, and the largest of them.
WITNESSES, SMALL = 4, 1 << 16


def far_leaves(graph: LiveGraph) -> list[Any]:
    """Some small leaves of `graph`, far from its roots."""
    far = [leaf for _, leaf in graph.leaves[::-1] if leaf.numel() <= SMALL]
    return far[:WITNESSES]


def _value(root: Any) -> float | None:
    """The value of a loss that is there."""
    if not isinstance(root, torch.Tensor) or not root.is_cpu or root.numel() != 1 or root.is_complex():
        return None
    try:
        return float(root.detach()) if root.layout is torch.strided else None
    except Exception:  # a subclass may have none, and raise what it likes when it is asked for it
        return None


class BackwardCalls:
    """Watches backward calls, nested ones too. What they mean is for those that it calls."""

    def __init__(
        self,
        eye: Eye,
        names: Naming,
        steps: StepWatch,
        values: Values,
        regions: Regions,
        attention: Attention,
    ) -> None:
        self._eye, self._names, self._steps, self._values = eye, names, steps, values
        self._regions, self._attention, self._events = regions, attention, eye.events
        self._own = eye.events.own
        self._plans, self._hooks = Plans(), Hooks()
        self.layouts = Layouts(eye.log, names)
        self.second = SecondOrder(eye.log, names)
        #: Calls so far, and the numbers of those that are going on, innermost last.
        self.count = 0
        self.inside: list[int] = []
        #: Sequence numbers of nodes whose tensors got a hook of the user's.
        self._hooked: set[int] = set()
        #: Whether any of them was made with ``create_graph``.
        self.second_order = False
        #: Nodes below this number may have been made while nothing was noted.
        self.noted_from = 0
        #: The counter of nodes when the last outermost call was over.
        self._over_at = 0
        self._bounds: list[int] = []
        #: How many nodes were made from one outermost call to the next.
        self._sizes: set[int] = set()
        self._witnesses: list[weakref.ref[Any]] = []
        #: Called with what is known of a call that is only counted: number, step, place, where its graph may begin.
        self.counted: Callable[[int, int, Spot | None, int], None] | None = None
        #: Makes a record of a call that is over.
        self.outcome: Callable[[Running], Recorded] | None = None

    def hook_registered(self, node: Any) -> None:
        """The user's code put a hook on the tensor that `node` made."""
        self._hooked.add(node._sequence_nr())
        if len(self._hooked) > 100_000:
            self._hooked.clear()

    def leave(self) -> None:
        """In a forked child: forget the calls of the parent that are going on."""
        self.inside.clear()

    @passes_on
    def run(self, entry: EntryPoint, func: Any, args: Any, kwargs: Any, frame: Any) -> Any:
        """Call `func`, which `frame` called, watched."""
        call = partial(self._eye.call, func, args, kwargs, frame)
        mark, begin = self._own.mark(), None
        try:
            self._events.tell("backward_begins")
            arguments = entry.bind(args, kwargs)
            if arguments is not None:
                begin = self._before_call(entry.kind, as_list(arguments.pop(entry.roots)), arguments, frame)
        except Exception as error:
            self._events.fault(self, error)
        self._own.since(mark)
        return call() if begin is None else self.watched(begin, call)

    @passes_on
    def watched(self, begin: Callable[[], Running | None], call: Callable[[], Any]) -> Any:
        """Make a `call` that `begin` gives the record of. What fails in watching is a fault of ours, and what the call
        raises goes to whoever made it."""
        running, mark = None, self._own.mark()
        try:
            with private.unprofiled():
                running = begin()
        except Exception as error:
            self._events.fault(self, error)
        self._own.since(mark)
        if running is None:
            return call()
        try:
            result = call()
        except BaseException as error:
            running.error = error
            raise
        finally:
            running.ended = _clock()
            try:
                with private.unprofiled():
                    self._end(running)
            except Exception as error:
                self._events.fault(self, error)
        return result

    def _before_call(
        self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any
    ) -> Callable[[], Running | None] | None:
        """A call from `roots` is about to be made: what begins its record; ``None`` where it is only counted."""
        nested = bool(self.inside)
        if self._steps.stepped and not nested:
            self._steps.finish()
        if not self._eye.noting:
            self.count_only(roots, nested, self.witnesses if kind != "autograd.grad" else None)
            return None
        return partial(self.begin, kind, roots, arguments, frame)

    def passes(self, entry: EntryPoint, roots: Sequence[Any], leaves: list[Any]) -> int:
        """A call into `leaves` that a debugger runs begins: it is counted, and nothing of it is recorded. The step."""
        self._events.tell("backward_begins")
        nested, steps = bool(self.inside), self._steps
        if steps.stepped and not nested:
            steps.finish()
        self.count_only(roots, nested, leaves if entry.kind != "autograd.grad" else None)
        return steps.index

    def explained(
        self, entry: EntryPoint, args: Any, kwargs: Any, frame: Any, error: BaseException, ran: Sequence[int]
    ) -> Recorded | None:
        """What is known of a call that has raised and of which nothing was recorded.

        :param ran: the nodes that have run, as a walk from the roots counts them.
        """
        arguments = entry.bind(args, kwargs)
        if arguments is None:
            return None
        running = self._raised(entry.kind, as_list(arguments.pop(entry.roots)), arguments, frame, error, ran)
        try:
            return self.outcome(running) if self.outcome is not None else None
        finally:
            running.free()

    def _raised(
        self,
        kind: str,
        roots: Sequence[Any],
        arguments: dict[str, Any],
        frame: Any,
        error: BaseException | None,
        ran: Sequence[int] | None,
    ) -> Running:
        """A call that is over, or has raised. `ran`: the nodes that have run; ``None``: that is to be found out."""
        running = self._running(kind, roots, arguments, frame)
        running.index, running.error = max(self.count - 1, 0), error
        running.began = running.ended = _clock()
        graph = running.graph
        running.watch = Watch(graph.nodes, graph.plan, (), self._hooks, Look(False))
        if ran is None and error is not None:
            ran = ran_before(graph, running.live.needed, error, self._over_at)
        hooked = set(graph.plan.hooked)
        running.watch.order = [i for i in ran or () if i in hooked]
        running.watch.times = [0.0] * (2 * len(running.watch.order) + 1)  # nobody took them
        return running

    # For calls that are not recorded

    @property
    def step(self) -> int:
        return self._steps.index

    @property
    def witnesses(self) -> list[Any]:
        """A few leaves of the last graph that was recorded, far from its roots."""
        known = [leaf for leaf in (ref() for ref in self._witnesses) if leaf is not None]
        return known or self._steps.some_held()

    def between_steps(self) -> None:
        """An outermost call is about to begin: is the step before it over?"""
        if self._steps.stepped:
            self._steps.finish()

    def passes_by(self, roots: Sequence[Any], kind: str, frame: Any) -> bool:
        """An outermost call is about to be made, of which no more is known. Whether as many nodes were made for it as
        for one before."""
        spot, adds = self._names.frames.spot(frame), kind != "autograd.grad"
        if self.counted is not None:
            self.counted(self.count, self._steps.index, spot, self._over_at)
        if adds:
            self._events.tell("call_counted", spot, roots)
        self.count_only(roots, False, self.witnesses if adds else None)
        return self._made_as_many()

    def _made_as_many(self) -> bool:
        """Whether as many nodes were made since the last outermost call as before one that was."""
        made = private.next_sequence_nr() - self._over_at
        known = made in self._sizes
        self._sizes.add(made)
        return known

    def is_well(self, roots: Sequence[Any]) -> bool:
        """Whether losses are finite, as far as that is known without waiting for an accelerator."""
        return all(value is None or value - value == 0.0 for value in map(_value, roots))

    def over(self) -> None:
        """An outermost call is over."""
        self._over_at = private.next_sequence_nr()
        self._bounds.append(self._over_at)
        if len(self._bounds) > 2000:
            del self._bounds[:1000]

    def spoilt(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any) -> None:
        """An outermost call that was counted gave gradients that are not finite: tell what is known of it."""
        running = self._raised(kind, roots, arguments, frame, None, ())
        watch, graph = running.watch, running.graph
        order = engine_order(graph.plan, graph.seqs, running.live.needed)
        watch.order = [i for i in order if i in set(graph.plan.hooked)]
        watch.times = [0.0] * (2 * len(watch.order) + 1)
        bad: dict[int, bool] = {}
        with private.unseen(), private.unnoticed(), torch.no_grad():
            for i, leaf in graph.leaves:
                if leaf.grad is not None:
                    slot = watch.norms.now(leaf.grad)
                    watch.came.append((i, 0, slot, leaf.grad.shape, leaf.grad.dtype))
                    bad[i] = slot in watch.norms.bad
        custom = {
            i for i, node in enumerate(graph.nodes) if isinstance(node, torch.autograd.function.BackwardCFunction)
        }
        node = culprit(graph.plan, order, bad, custom, self.layouts.newcomers)
        if node is not None:
            values = next(iter(watch.norms.bad.values()))
            watch.bad_nodes.append(BadNode(node, 0, values, False, (), None, True))
        self._hand_on(running)

    def failed(
        self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any, error: BaseException
    ) -> None:
        """An outermost call that was counted has raised: tell what is known of it."""
        self._hand_on(self._raised(kind, roots, arguments, frame, error, None))

    def _hand_on(self, running: Running) -> None:
        """Tell of a call that was not recorded while it ran."""
        steps = self._steps
        counted, losses = list(steps.backwards), copy.copy(steps.losses)
        try:
            if self.outcome is not None:
                self._events.tell("backward_ran", running)
                recorded = self.outcome(running)
                steps.backwards, steps.losses = counted, losses
                self._events.tell("backward_over", running, recorded)
        finally:
            running.free()

    def begin(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any) -> Running:
        """Walk the graph and hook it."""
        running = self._running(kind, roots, arguments, frame)
        nested = running.inside is not None
        if not nested and kind != "autograd.grad":
            self._steps.writes([v for _, v in running.graph.leaves])
            running.step = self._steps.index
        self._values.flush(running.graph)
        self.second_order = self.second_order or running.creates_graph
        self._events.tell("graph_known", running, frame)
        try:
            self._attach(running)
        except BaseException:
            self._events.tell("backward_ended", running)  # no hook of ours stays anywhere
            raise
        self.count += 1
        self.inside.append(running.index)
        self._names.modules.in_backward = True
        running.began, running.began_at = _clock(), private.next_sequence_nr()
        if not nested:
            self._made_as_many()
        return running

    def _running(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any) -> Running:
        starts = [node_of(root) for root in roots]
        graph = walk(starts, self._plans)
        if graph.span[0] < self.noted_from:
            self.layouts.assume(graph, self._bounds)
        return Running(
            kind,
            arguments,
            roots,
            starts,
            graph,
            self.layouts.get(graph, needed_nodes(kind, arguments, graph)),
            self.count,
            self._steps.index,
            self.inside[-1] if self.inside else None,
            self._names.frames.spot(frame),
            self._eye.modes(),
            self._steps.losses.scale_of(roots),
        )

    def count_only(self, roots: Sequence[Any], nested: bool, leaves: list[Any] | None) -> None:
        """Where nodes are not recorded: the call and its loss.

        :param leaves: of those that it adds gradients to, the known ones; ``None`` for a call that adds none.
        """
        steps = self._steps
        if not nested:
            if leaves is not None:
                steps.writes(leaves)
                scale, values = steps.losses.scale_of(roots), map(_value, roots)
                steps.losses.ended([value / scale for value in values if value is not None], scale, leaves)
            steps.backwards.append(self.count)
        self.count += 1

    def _attach(self, running: Running) -> None:
        eye, graph, leaves = self._eye, running.graph, running.graph.leaves
        number = {n: i for i, n in enumerate(graph.nodes[: len(running.starts)])}
        before = {number[n] for n in running.starts if n is not None}
        before.update(i for i, v in leaves if v._backward_hooks or getattr(v, "_post_accumulate_grad_hooks", None))
        if self._hooked:
            before.update(i for i, seq in enumerate(graph.seqs) if seq in self._hooked)
        here = eye.is_here()
        self._events.tell("backward_starts", running)
        python = None
        if here:
            within = self._regions.within(graph.seqs) if self._regions.known else ()
            python = PythonNodes(eye.push, eye.pop, within, running.entered)
        look = Look(eye.careful, self._attention.used_to_it, running.creates_graph)
        running.watch = Watch(graph.nodes, graph.plan, before, self._hooks, look, running.live.program, python)
        running.watch.on_error = self._hook_failed
        running.watch.start(self._told(running))

    def _end(self, running: Running) -> None:
        """Unhook the graph, and hand on what was seen."""
        watch, mark = running.watch, self._own.mark()
        self._eye.unwind(running.modes)
        watch.stop()  # before anything that can fail: no hook of ours stays on the graph
        self.inside.pop()
        self.layouts.unshaped += watch.unshaped
        self._events.tell("backward_ended", running)
        self._names.modules.in_backward = bool(self.inside)
        if self.outcome is not None:
            self._events.tell("backward_ran", running)
            recorded = self.outcome(running)
            self._events.tell("backward_over", running, recorded)
            self._events.well()
        if running.creates_graph and self._eye.is_here():
            self.second.note(running)
            self._eye.made_by(running.spot, running.kind)
        self._eye.last = private.next_sequence_nr()
        if running.inside is None:
            self.over()
        if running.inside is None and running.kind != "autograd.grad":
            self._witnesses = [private.tensor_ref(leaf) for leaf in far_leaves(running.graph)]
        hooked, inside = len(watch.order), watch.watching
        del watch
        running.free()
        if not self._own.per_node and not self.inside:
            self._own.per_node = private.overhead_of_node()
            self._eye.last = private.next_sequence_nr()
        self._own.since(mark)
        self._own.ran(hooked, inside)

    def _hook_failed(self, error: BaseException) -> None:
        self._events.fault(self._hooks, error)

    def _told(self, running: Running) -> Callable[[int, Any, Any], None] | None:
        """What hands on each node that ran; ``None`` where nobody wants to know."""
        if not self._events.node_ran:
            return None
        return lambda node, came, went: self._events.tell("node_ran", running, node, came, went)
