"""Backward calls: registers hooks on the graph of each, and removes them when the call is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ...torch_internals import private
from ...torch_internals.async_scalars import Later
from ...torch_internals.entry_points import EntryPoint, as_list, needed_nodes, node_of, number_of_root
from ...torch_internals.machine import uncollected
from ...torch_internals.measure import flush_together
from ...torch_internals.uncompiled import dynamo_passthrough
from ...torch_internals.walk import LiveGraph, Plans, walk
from ..forward.observers import ForwardObservers
from ..schedule.step_schedule import StepSchedule
from .active_backward import ActiveBackward
from .layouts import Layouts, LiveLayout
from .node_count_history import NodeCountHistory
from .node_hook_set import MeasurementMode, NodeHookSet, PythonNodes
from .node_hooks import Hooks
from .pending_call_record import PendingCallRecord
from .post_mortem import executed_nodes
from .second import SecondOrder

if TYPE_CHECKING:
    from .call_record_builder import CallRecordBuilder

_clock = time.perf_counter

#: The number of leaves that are checked as a sample of all leaves of a graph, and the most elements of such a leaf.
MAX_SENTINELS, MAX_SENTINEL_ELEMENTS = 4, 1 << 16


def far_leaves(graph: LiveGraph) -> list[Any]:
    """Return some small leaves of `graph`, far from its roots."""
    far = [leaf for _, leaf in graph.leaves[::-1] if leaf.numel() <= MAX_SENTINEL_ELEMENTS]
    return far[:MAX_SENTINELS]


def loss_value(root: object) -> float | None:
    """Return the value of a loss on the CPU, if reading it affects nothing but a profiler of the user."""
    if not isinstance(root, torch.Tensor) or not root.is_cpu or root.numel() != 1 or root.is_complex():
        return None
    try:
        here = None if private.is_partial(root) else private.local(root)
        if here is None or here.layout is not torch.strided or private.hands_off(here, past_ours=True):
            return None
        with private.undispatched():
            return float(here.item())
    except Exception:  # a subclass may have no value, or raise anything when asked for it
        return None


def all_finite(values: Sequence[float | None]) -> bool:
    """Return whether no known value is NaN or infinite."""
    return all(value is None or value - value == 0.0 for value in values)


class BackwardCalls:
    """Observes backward calls, including nested ones, and passes them to the callbacks that evaluate them.

    :param builder: makes the record of a call that is over.
    :param later: fetches numbers from accelerators.
    """

    def __init__(
        self,
        forward: ForwardObservers,
        schedule: StepSchedule,
        second: SecondOrder,
        builder: CallRecordBuilder,
        later: Later,
    ) -> None:
        self._recorder, self._names, self._values = forward.recorder, forward.names, forward.values
        self._regions, self._events, self._own = forward.regions, forward.recorder.events, forward.recorder.events.own
        self._steps, self._inspections, self._state = schedule.steps, schedule.policy.inspections, schedule.state
        self._plans, self._hooks = Plans(), Hooks()
        self.layouts = Layouts(forward.recorder.log, forward.names, schedule.scanner)
        self.second, self._builder, self._later = second, builder, later
        #: The number of calls so far.
        self.count = 0
        #: Sequence numbers of nodes whose tensors have hooks of the user.
        self._hooked: set[int] = set()
        #: Whether any call was made with ``create_graph``.
        self.second_order = False
        self.between = NodeCountHistory()
        #: Calls whose backward ``compiled_autograd`` compiled: their nodes get no hooks.
        self.compiled = 0

    @property
    def running(self) -> list[int]:
        """Return the indices of the recorded calls that are running, innermost last."""
        return self._state.running_calls

    @property
    def recorded_from(self) -> int:
        """Return the sequence number from which on all nodes were made while everything was recorded."""
        return self._state.recorded_from

    def record_of(self, running: ActiveBackward) -> PendingCallRecord:
        """Return the record of a call that is over."""
        return self._builder.of(running)

    def hook_registered(self, node: torch.autograd.graph.Node) -> None:
        """Remember that the user's code registered a hook on the tensor that `node` made."""
        self._hooked.add(node._sequence_nr())
        if len(self._hooked) > 100_000:
            self._hooked.clear()

    def leave(self) -> None:
        """Forget the parent's running calls, in a forked child."""
        self._state.running_calls.clear()

    @dynamo_passthrough
    def watched(self, begin: Callable[[], ActiveBackward | None], call: Callable[[], Any]) -> Any:
        """Make `call` and observe it.

        `begin` gives its ``ActiveBackward``. Errors of backprobe are counted; the exception of the call is raised to
        its caller.
        """
        running, mark = None, self._own.begin()
        try:
            with private.unprofiled():
                running = begin()
        except Exception as error:
            self._events.fault(self, error)
        self._own.since(mark)
        if running is None:
            return call()
        try:
            result = running.result = call()
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

    def passes(self, entry: EntryPoint, roots: Sequence[object], leaves: list[torch.Tensor]) -> int:
        """Count a call into `leaves` that a debugger runs; nothing of it is recorded. Returns the step."""
        self._events.backward_begins.emit()
        nested, steps = bool(self._state.running_calls), self._steps
        if steps.stepped and not nested:
            steps.finish()
        self.count_only(roots, nested, leaves if entry.kind != "autograd.grad" else None)
        return steps.index

    def explained(
        self,
        entry: EntryPoint,
        args: object,
        kwargs: object,
        frame: FrameType,
        error: BaseException,
        ran: Sequence[int],
    ) -> PendingCallRecord | None:
        """Return the record of a call that raised and was not observed.

        :param ran: the nodes that have run, by their positions in a walk from the roots.
        """
        arguments = entry.bind(args, kwargs)
        if arguments is None:
            return None
        running = self.raised(entry.kind, as_list(arguments.pop(entry.roots)), arguments, frame, error, ran)
        try:
            return self._builder.of(running)
        finally:
            running.free()

    def raised(
        self,
        kind: str,
        roots: Sequence[object],
        arguments: dict[str, object],
        frame: FrameType,
        error: BaseException | None,
        ran: Sequence[int] | None,
    ) -> ActiveBackward:
        """Return the state of a call that was only counted, and that is over or has raised.

        :param ran: the nodes that have run; ``None`` to find them out.
        """
        running = self._running(kind, roots, arguments, frame)
        running.index, running.error, running.counted = max(self.count - 1, 0), error, True
        running.began = running.ended = _clock()
        if running.scale_away is not None:  # something is wrong: that may wait
            running.scale = self._steps.losses.scale_of(roots)
        graph = running.graph
        running.watch = NodeHookSet(graph.nodes, graph.plan, (), self._hooks, MeasurementMode(False))
        if ran is None and error is not None:
            ran = executed_nodes(graph, running.live.needed, error, self.between.over_at)
        running.watch.unwatched(ran or ())
        return running

    def flush(self, running: ActiveBackward) -> None:
        """Measure the pending values of the call's forward."""
        self._values.flush(running.graph)

    def begin(
        self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: FrameType | None
    ) -> ActiveBackward:
        """Walk the graph of a call and register hooks on it."""
        with uncollected():
            return self._begin(kind, roots, arguments, frame)

    @property
    def may_repeat(self) -> bool:
        """Whether a call with a known graph can be recorded without its forward."""
        first_order = not (self.second_order or self._hooked or self._regions.known)
        return first_order and not (self.layouts.compiled or self.compiled or self._events.node_ran.listeners)

    def repeated(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType
    ) -> ActiveBackward | None:
        """Return the state of an outermost call of which only the backward is recorded.

        Returns ``None`` if its graph equals none of the last ones.
        """
        if arguments.get("create_graph"):
            return None
        starts = [node_of(root) for root in roots]
        graph = walk(starts, self._plans)
        live = self.layouts.known(graph, needed_nodes(kind, arguments, graph))
        if live is None:
            return None
        running = self._made(kind, roots, arguments, frame, starts, graph, live)
        running.repeats = True
        return running

    def begin_repeated(self, running: ActiveBackward) -> ActiveBackward:
        """Register hooks on the graph of a repeated call."""
        with uncollected():
            if running.kind != "autograd.grad":
                self._steps.writes([v for _, v in running.graph.leaves])
                running.step = self._steps.index
            self._attach(running, None)
            self._goes_on(running)
        return running

    def _begin(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any) -> ActiveBackward:
        running = self._running(kind, roots, arguments, frame)
        nested = running.inside is not None
        if not nested and kind != "autograd.grad":
            self._steps.writes([v for _, v in running.graph.leaves])
            running.step = self._steps.index
        self._values.flush(running.graph)
        self.second_order = self.second_order or running.creates_graph
        self._events.graph_walked.emit(running, frame)
        try:
            self._events.backward_attaching.emit(running)
            self._attach(running, self._python_nodes(running))
        except BaseException:
            self._events.backward_detaching.emit(running)  # leaves no hook of ours registered
            raise
        self._names.modules.enter_backward(True)
        self._goes_on(running)
        if not nested:
            self.between.as_many()
        return running

    def _goes_on(self, running: ActiveBackward) -> None:
        self.count += 1
        self._state.running_calls.append(running.index)
        running.began, running.ran, running.began_at = _clock(), time.thread_time(), private.next_sequence_nr()

    def _running(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType
    ) -> ActiveBackward:
        starts = [node_of(root) for root in roots]
        graph = walk(starts, self._plans)
        if graph.span[0] < self._state.recorded_from:
            self.layouts.assume(graph, self.between.bounds)
        live = self.layouts.get(graph, needed_nodes(kind, arguments, graph))
        return self._made(kind, roots, arguments, frame, starts, graph, live)

    def _made(
        self,
        kind: str,
        roots: Sequence[object],
        arguments: dict[str, object],
        frame: FrameType,
        starts: list[object],
        graph: LiveGraph,
        live: LiveLayout,
    ) -> ActiveBackward:
        losses = self._steps.losses
        away = losses.scale_away(roots)
        return ActiveBackward(
            kind,
            arguments,
            roots,
            starts,
            graph,
            live,
            self.count,
            self._steps.index,
            self._state.running_calls[-1] if self._state.running_calls else None,
            self._names.frames.spot(frame),
            self._recorder.modes(),
            losses.scale_of(roots) if away is None else 1.0,
            away,
        )

    def count_unobserved(self, count: int) -> None:
        """Count `count` calls that took the fast path."""
        self.count += count

    def count_only(
        self,
        roots: Sequence[object],
        nested: bool,
        leaves: list[object] | None,
        values: Sequence[float | None] | None = None,
    ) -> None:
        """Count a call whose nodes are not recorded, and its loss.

        :param leaves: the known leaves that it adds gradients to; ``None`` for a call that adds none.
        :param values: the values of `roots`, if they were read.
        """
        steps = self._steps
        if not nested:
            if leaves is not None:
                steps.writes(leaves)
                losses, known = steps.losses, map(loss_value, roots) if values is None else values
                scale = losses.scale_of(roots, False)
                numbers = [value / scale for value in known if value is not None]
                losses.ended(numbers, scale, losses.away(roots) if len(numbers) < len(roots) else ())
                losses.gave(leaves[::-1])
            steps.backwards.append(self.count)
        self.count += 1

    def _python_nodes(self, running: ActiveBackward) -> PythonNodes | None:
        recorder = self._recorder
        if not recorder.is_here():
            return None
        within = self._regions.within(running.graph.seqs) if self._regions.known else ()
        return PythonNodes(recorder.push, recorder.pop, within, running.entered)

    def _attach(self, running: ActiveBackward, python: PythonNodes | None) -> None:
        recorder, graph, leaves = self._recorder, running.graph, running.graph.leaves
        number = {n: i for i, n in enumerate(graph.nodes[: len(running.starts)])}
        before = {number[n] for n in running.starts if n is not None}
        before.update(i for i, v in leaves if v._backward_hooks or getattr(v, "_post_accumulate_grad_hooks", None))
        if self._hooked:
            before.update(i for i, seq in enumerate(graph.seqs) if seq in self._hooked)
        mode = MeasurementMode(recorder.inspecting, self._inspections.used_to_it, running.creates_graph)
        running.watch = NodeHookSet(graph.nodes, graph.plan, before, self._hooks, mode, running.live.program, python)
        running.watch.on_error = self._hook_failed
        running.watch.start(self._node_callback(running))

    def _end(self, running: ActiveBackward) -> None:
        """Remove the hooks from the graph, fetch what is on an accelerator, pass on the record, and account for it."""
        watch, mark = running.watch, self._own.begin()
        self._recorder.unwind(running.modes)
        watch.stop()  # before anything that can fail: no hook of ours stays on the graph
        self._state.running_calls.pop()
        self._fetch(running)
        self.layouts.unshaped += watch.unshaped
        if not running.repeats:
            self._events.backward_detaching.emit(running)
            self._names.modules.enter_backward(bool(self._state.running_calls))
        self._hand_on(running)
        self._events.reset_shared_faults()
        if running.creates_graph and self._recorder.is_here():
            self.second.note(running)
            self._recorder.made_by(running.spot, running.kind)
        self._recorder.skip_nodes()
        if running.inside is None:
            self.between.over()
        hooked, inside, times = len(watch.order), watch.watching, watch.times
        stalled = mark[0] - running.began - (mark[2] - running.ran)
        del watch
        running.free()
        if not self._own.per_node and not self._state.running_calls:
            self._own.per_node = private.overhead_of_node()
            self._recorder.skip_nodes()
        self._own.since(mark)
        self._own.ran(hooked, inside, times, stalled)

    def _fetch(self, running: ActiveBackward) -> None:
        """Fetch the numbers of a call that are on an accelerator, with one wait: Note [Nothing waits]."""
        known = ((at, number_of_root(root)) for at, root in enumerate(running.roots))
        numbers = {at: number for at, number in known if number is not None}
        away = running.scale_away
        others = [*numbers.values(), *([] if away is None else [away.detach().reshape(())])]
        norms = [running.watch.norms, *(() if running.repeats else self._values.outside.measured())]
        with private.undispatched():
            found = flush_together(norms, others, self._later)
        running.numbers = dict(zip(numbers, found, strict=False))
        if away is not None and found and found[-1] > 0:
            running.scale = found[-1]

    def _hand_on(self, running: ActiveBackward) -> None:
        fine = running.error is None and not running.watch.norms.bad
        if running.repeats and fine:
            self._events.backward_repeated.emit(running, self._builder.of(running))
            return
        if running.repeats:
            self.layouts.assume(running.graph, self.between.bounds)  # an explanation of the failure needs source lines
        self._events.backward_returned.emit(running)
        recorded = self._builder.of(running)
        self._events.backward_recorded.emit(running, recorded)

    def _hook_failed(self, error: BaseException) -> None:
        self._events.fault(self._hooks, error)

    def _node_callback(self, running: ActiveBackward) -> Callable[[int, Any, Any], None] | None:
        """Return the callback that emits each node that ran; ``None`` if the event has no listeners."""
        if not self._events.node_ran.listeners:
            return None
        return lambda node, grad_inputs, grad_outputs: self._events.node_ran.emit(
            running, node, grad_inputs, grad_outputs
        )
