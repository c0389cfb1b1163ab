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


def far_leaves(graph: LiveGraph) -> list[torch.Tensor]:
    """Return some small leaves of `graph`, far from its roots."""
    far = [leaf for _, leaf in graph.leaves[::-1] if leaf.numel() <= MAX_SENTINEL_ELEMENTS]
    return far[:MAX_SENTINELS]


def loss_value(root: object) -> float | None:
    """Return the value of a loss on the CPU, if reading it affects nothing but a profiler of the user."""
    if not isinstance(root, torch.Tensor) or not root.is_cpu or root.numel() != 1 or root.is_complex():
        return None
    try:
        here = None if private.is_partial(root) else private.local(root)
        if here is None or here.layout is not torch.strided or private.is_unsafe_to_read(here, ignores_our_modes=True):
            return None
        with private.hide_from_dispatch_modes():
            return float(here.item())
    except Exception:  # a subclass may have no value, or raise anything when asked for it
        return None


def all_finite(values: Sequence[float | None]) -> bool:
    """Return whether no known value is NaN or infinite."""
    return all(value is None or value - value == 0.0 for value in values)


class BackwardCalls:
    """Observes backward calls, including nested ones, and emits the record of each.

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
        """Start with no calls; `second` follows second derivatives."""
        self._recorder, self._names, self._values = forward.recorder, forward.names, forward.values
        self._regions, self._events, self._own = forward.regions, forward.recorder.events, forward.recorder.events.own
        self._steps, self._inspections, self._state = schedule.steps, schedule.policy.inspections, schedule.state
        self._plans, self._hooks = Plans(), Hooks()
        self.layouts = Layouts(forward.recorder.log, forward.names, schedule.scanner)
        self.second, self._builder, self._later = second, builder, later
        #: The number of calls so far.
        self.count = 0
        #: Sequence numbers of nodes whose tensors have hooks of the user.
        self._hooked_seqs: set[int] = set()
        #: Whether any recorded call was made with ``create_graph``.
        self.has_second_order = False
        self.node_counts = NodeCountHistory()
        #: Calls whose backward ``compiled_autograd`` compiled: their nodes get no hooks.
        self.compiled_calls = 0

    @property
    def running(self) -> list[int]:
        """Return the indices of the recorded calls that are running, innermost last."""
        return self._state.running_calls

    @property
    def recorded_from(self) -> int:
        """Return the sequence number from which on all nodes were made while everything was recorded."""
        return self._state.recorded_from

    def record_of(self, running: ActiveBackward) -> PendingCallRecord:
        """Return the record of a call that is over, made by the builder."""
        return self._builder.of(running)

    def hook_registered(self, node: torch.autograd.graph.Node) -> None:
        """Remember that the user's code registered a hook on the tensor that `node` made."""
        self._hooked_seqs.add(node._sequence_nr())
        if len(self._hooked_seqs) > 100_000:
            self._hooked_seqs.clear()

    def leave(self) -> None:
        """Forget the parent's running calls, in a forked child."""
        self._state.running_calls.clear()

    @dynamo_passthrough
    def run_observed(self, begin: Callable[[], ActiveBackward | None], call: Callable[[], object]) -> object:
        """Make `call` and observe it.

        `begin` gives its ``ActiveBackward``. Errors of backprobe are counted; the exception of the call is raised to
        its caller.
        """
        running, mark = None, self._own.begin()
        try:
            with private.hide_from_profiler():
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
                with private.hide_from_profiler():
                    self._end(running)
            except Exception as error:
                self._events.fault(self, error)
        return result

    def count_debugged_call(self, entry: EntryPoint, roots: Sequence[object], leaves: list[torch.Tensor]) -> int:
        """Count a call to `leaves` that a debugger runs and that is not recorded. Return the index of its step."""
        self._events.backward_begins.emit()
        nested, steps = bool(self._state.running_calls), self._steps
        if steps.has_stepped and not nested:
            steps.finish()
        self.count_call(roots, nested, leaves if entry.kind != "autograd.grad" else None)
        return steps.index

    def error_record(
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
        running = self.unrecorded_call(entry.kind, as_list(arguments.pop(entry.roots)), arguments, frame, error, ran)
        try:
            return self._builder.of(running)
        finally:
            running.free()

    def unrecorded_call(
        self,
        kind: str,
        roots: Sequence[object],
        arguments: dict[str, object],
        frame: FrameType,
        error: BaseException | None,
        ran: Sequence[int] | None,
    ) -> ActiveBackward:
        """Return the state of a call that was counted and not recorded, to make a record of it after the fact.

        :param error: the error that it raised, if it raised.
        :param ran: the nodes that have run; ``None``: infer them from the error.
        """
        running = self._new_call(kind, roots, arguments, frame)
        running.index, running.error, running.was_counted = max(self.count - 1, 0), error, True
        running.began = running.ended = _clock()
        if running.scale_away is not None:  # something is wrong: that may wait
            running.scale = self._steps.losses.scale_of(roots)
        graph = running.graph
        running.watch = NodeHookSet(graph.nodes, graph.plan, (), self._hooks, MeasurementMode(False))
        if ran is None and error is not None:
            ran = executed_nodes(graph, running.live.needed, error, self.node_counts.last_end)
        running.watch.set_order(ran or ())
        return running

    def flush_values(self, running: ActiveBackward) -> None:
        """Measure the pending values of the call's forward."""
        self._values.flush(running.graph)

    def begin(
        self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: FrameType | None
    ) -> ActiveBackward:
        """Walk the graph of a call and register hooks on it; return the call's state, with no garbage collection
        meanwhile.
        """
        with uncollected():
            return self._begin(kind, roots, arguments, frame)

    @property
    def can_record_backward_only(self) -> bool:
        """Return whether a call whose graph is known can be recorded without its forward (Note [Steps that repeat])."""
        first_order = not (self.has_second_order or self._hooked_seqs or self._regions.known)
        return first_order and not (
            self.layouts.compiled_layouts or self.compiled_calls or self._events.node_ran.listeners
        )

    def known_call(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType
    ) -> ActiveBackward | None:
        """Return the state of an outermost call whose graph equals a known layout, to record only its backward.

        Returns ``None`` if the graph equals none, or with ``create_graph``.
        """
        if arguments.get("create_graph"):
            return None
        starts = [node_of(root) for root in roots]
        graph = walk(starts, self._plans)
        live = self.layouts.repeated_layout(graph, needed_nodes(kind, arguments, graph))
        if live is None:
            return None
        running = self._call_on_graph(kind, roots, arguments, frame, starts, graph, live)
        running.backward_only = True
        return running

    def begin_backward_only(self, running: ActiveBackward) -> ActiveBackward:
        """Register hooks on the graph of a call whose forward was not recorded, which ``known_call`` returned; return
        the call.
        """
        with uncollected():
            if running.kind != "autograd.grad":
                self._steps.begin_accumulating_call([v for _, v in running.graph.leaves])
                running.step = self._steps.index
            self._attach(running, None)
            self._mark_begin(running)
        return running

    def _begin(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any) -> ActiveBackward:
        """Walk the graph of a call, check the forward's pending values, register hooks, and mark the call as
        running.
        """
        running = self._new_call(kind, roots, arguments, frame)
        nested = running.inside is not None
        if not nested and kind != "autograd.grad":
            self._steps.begin_accumulating_call([v for _, v in running.graph.leaves])
            running.step = self._steps.index
        self._values.flush(running.graph)
        self.has_second_order = self.has_second_order or running.creates_graph
        self._events.graph_walked.emit(running, frame)
        try:
            self._events.backward_attaching.emit(running)
            self._attach(running, self._python_nodes(running))
        except BaseException:
            self._events.backward_detaching.emit(running)  # leaves no hook of ours registered
            raise
        self._names.modules.enter_backward(True)
        self._mark_begin(running)
        if not nested:
            self.node_counts.begin_call()
        return running

    def _mark_begin(self, running: ActiveBackward) -> None:
        """Count the call, and note when it begins: it is the innermost running call from now on."""
        self.count += 1
        self._state.running_calls.append(running.index)
        running.began, running.thread_seconds, running.began_at = (
            _clock(),
            time.thread_time(),
            private.next_sequence_nr(),
        )

    def _new_call(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType
    ) -> ActiveBackward:
        """Walk the graph of a call, find its layout, and return the call's state.

        Lines that were not recorded are inferred.
        """
        starts = [node_of(root) for root in roots]
        graph = walk(starts, self._plans)
        if graph.span[0] < self._state.recorded_from:
            self.layouts.infer_lines(graph, self.node_counts.call_ends)
        live = self.layouts.get(graph, needed_nodes(kind, arguments, graph))
        return self._call_on_graph(kind, roots, arguments, frame, starts, graph, live)

    def _call_on_graph(
        self,
        kind: str,
        roots: Sequence[object],
        arguments: dict[str, object],
        frame: FrameType,
        starts: list[object],
        graph: LiveGraph,
        live: LiveLayout,
    ) -> ActiveBackward:
        """Return the state of a call whose `graph` and layout (`live`) are known, with the step, line and loss scale of
        now.
        """
        losses = self._steps.losses
        away = losses.accelerator_scale(roots)
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

    def count_fast_path_calls(self, count: int) -> None:
        """Count `count` calls that took the fast path."""
        self.count += count

    def count_call(
        self,
        roots: Sequence[object],
        nested: bool,
        leaves: list[torch.Tensor] | None,
        values: Sequence[float | None] | None = None,
    ) -> None:
        """Count a call whose nodes are not recorded, and its loss.

        :param leaves: the known leaves that it adds gradients to; ``None`` for a call that adds none.
        :param values: the values of `roots`, if they were read.
        """
        steps = self._steps
        if not nested:
            if leaves is not None:
                steps.begin_accumulating_call(leaves)
                losses, known = steps.losses, map(loss_value, roots) if values is None else values
                scale = losses.scale_of(roots, False)
                numbers = [value / scale for value in known if value is not None]
                losses.add_call(numbers, scale, losses.accelerator_losses(roots) if len(numbers) < len(roots) else ())
                losses.note_gradients(leaves[::-1])
            steps.call_indices.append(self.count)
        self.count += 1

    def _python_nodes(self, running: ActiveBackward) -> PythonNodes | None:
        """Return how to record inside nodes that run Python, such as recomputations; ``None`` in a thread that is not
        recorded.
        """
        recorder = self._recorder
        if not recorder.is_here():
            return None
        within = self._regions.within(running.graph.seqs) if self._regions.known else ()
        return PythonNodes(recorder.push, recorder.pop, within, running.entered)

    def _attach(self, running: ActiveBackward, python: PythonNodes | None) -> None:
        """Register hooks on the nodes of a call, to measure gradients; nodes that hooks of the user may change are
        hooked before.
        """
        recorder, graph, leaves = self._recorder, running.graph, running.graph.leaves
        number = {n: i for i, n in enumerate(graph.nodes[: len(running.starts)])}
        before = {number[n] for n in running.starts if n is not None}
        before.update(i for i, v in leaves if v._backward_hooks or getattr(v, "_post_accumulate_grad_hooks", None))
        if self._hooked_seqs:
            before.update(i for i, seq in enumerate(graph.seqs) if seq in self._hooked_seqs)
        mode = MeasurementMode(recorder.inspecting, self._inspections.has_only_bad_values, running.creates_graph)
        running.watch = NodeHookSet(
            graph.nodes, graph.plan, before, self._hooks, mode, running.live.measurement_plan, python
        )
        running.watch.on_error = self._hook_failed
        running.watch.start(self._node_callback(running))

    def _end(self, running: ActiveBackward) -> None:
        """End an observed backward call: remove the hooks, read numbers from accelerators, emit the record, account for
        time.
        """
        watch, mark = running.watch, self._own.begin()
        self._recorder.unwind(running.modes)
        watch.stop()  # before anything that can fail: no hook of ours stays on the graph
        self._state.running_calls.pop()
        self._fetch_numbers(running)
        self.layouts.unshaped += watch.unshaped
        if not running.backward_only:
            self._events.backward_detaching.emit(running)
            self._names.modules.enter_backward(bool(self._state.running_calls))
        self._emit_record(running)
        self._events.reset_shared_faults()
        if running.creates_graph and self._recorder.is_here():
            self.second.record_nodes(running)
            self._recorder.attribute_nodes(running.spot, running.kind)
        self._recorder.skip_nodes()
        if running.inside is None:
            self.node_counts.end_call()
        hooked, inside, times = len(watch.order), watch.seconds_in_hooks, watch.times
        stalled = mark[0] - running.began - (mark[2] - running.thread_seconds)
        del watch
        running.free()
        if not self._own.per_node and not self._state.running_calls:
            self._own.per_node = private.overhead_of_node()
            self._recorder.skip_nodes()
        self._own.since(mark)
        self._own.ran(hooked, inside, times, stalled)

    def _fetch_numbers(self, running: ActiveBackward) -> None:
        """Read, with a single wait, all numbers of a call that are on an accelerator: norms, values of its roots, loss
        scale.
        """
        known = ((at, number_of_root(root)) for at, root in enumerate(running.roots))
        numbers = {at: number for at, number in known if number is not None}
        away = running.scale_away
        others = [*numbers.values(), *([] if away is None else [away.detach().reshape(())])]
        norms = [running.watch.norms, *(() if running.backward_only else self._values.nongraph.norms_to_fetch())]
        with private.hide_from_dispatch_modes():
            found = flush_together(norms, others, self._later)
        running.root_values = dict(zip(numbers, found, strict=False))
        if away is not None and found and found[-1] > 0:
            running.scale = found[-1]

    def _emit_record(self, running: ActiveBackward) -> None:
        """Make the record of a call that is over, and emit it: as repeated if only its backward was recorded and it
        went well.
        """
        fine = running.error is None and not running.watch.norms.bad
        if running.backward_only and fine:
            self._events.backward_repeated.emit(running, self._builder.of(running))
            return
        if running.backward_only:
            # An explanation of the failure needs source lines.
            self.layouts.infer_lines(running.graph, self.node_counts.call_ends)
        self._events.backward_returned.emit(running)
        recorded = self._builder.of(running)
        self._events.backward_recorded.emit(running, recorded)

    def _hook_failed(self, error: BaseException) -> None:
        """Count an error that a hook of ours raised inside the engine."""
        self._events.fault(self._hooks, error)

    def _node_callback(self, running: ActiveBackward) -> Callable[[int, object, object], None] | None:
        """Return the callback that emits each node that ran; ``None`` if the event has no listeners."""
        if not self._events.node_ran.listeners:
            return None
        return lambda node, grad_inputs, grad_outputs: self._events.node_ran.emit(
            running, node, grad_inputs, grad_outputs
        )
