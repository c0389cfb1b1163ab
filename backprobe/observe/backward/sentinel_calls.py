"""Counts backward calls whose nodes are not recorded, checks their losses, and records the calls that failed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch

from ...graphs.plan import engine_order
from ...records import BadNode
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.entry_points import node_of
from ...torch_internals.walk import Plans, walk
from ..events import Events
from ..forward.naming import Naming
from ..schedule.budget import Budget
from ..schedule.losses import NotedLoss
from ..schedule.steps import StepWatch
from .active_backward import ActiveBackward
from .calls import BackwardCalls, all_finite, far_leaves, loss_value
from .fast_path import SAMPLE_AT, TIMED_CALL_INTERVAL
from .line_inference import first_bad_node
from .pending_call_record import PendingCallRecord


class SentinelCalls:
    """Emits events for backward calls whose nodes are not recorded.

    :param remember: called for each call with its index, step and place, and the node counter at which its graph may
        begin.
    """

    def __init__(
        self,
        calls: BackwardCalls,
        names: Naming,
        steps: StepWatch,
        events: Events,
        remember: Callable[..., None],
    ) -> None:
        """Start without sentinels."""
        self.calls, self._names, self.steps, self._events, self._remember_call = calls, names, steps, events, remember
        #: Sentinels: leaves of the last recorded graph, the farthest from its roots first.
        self.sentinel_refs: list[weakref.ref[Any]] = []
        #: Leaves of the graph of an unrecorded call, used as long as no others are known.
        self._provisional_refs: list[weakref.ref[Any]] = []
        #: The place of the last counted call.
        self._last_spot: CodeLocation | None = None

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Take the sampled leaves for later unrecorded calls from a recorded one."""
        if running.inside is None and running.kind != "autograd.grad" and recorded.raised is None:
            self.sentinel_refs = [private.tensor_ref(leaf) for leaf in far_leaves(running.graph)]

    backward_repeated = backward_recorded

    @property
    def step(self) -> int:
        """The index of the running step."""
        return self.steps.index

    @property
    def leaves(self) -> list[torch.Tensor]:
        """Return the sentinels that are alive: some leaves far from the roots of the last recorded graph, or others."""
        known = [leaf for leaf in (ref() for ref in self.sentinel_refs) if leaf is not None]
        known = known or self.steps.optimizers.sample_parameters()
        return known or [leaf for leaf in (ref() for ref in self._provisional_refs) if leaf is not None]

    def take_fast_path(self, roots: Any, accumulates: bool, frame: FrameType, budget: Budget) -> bool | None:
        """Count an outermost call that is about to be made, if it belongs to a fast-path step. Return whether it does.

        Returns ``None`` if it does, but its graph has another number of nodes than those of earlier calls. May end the
        running step or the fast path.

        :param accumulates: whether the call accumulates gradients.
        :param budget: says whether a non-finite loss is only counted.
        """
        steps, calls = self.steps, self.calls
        if steps.has_stepped:
            steps.finish()
        leaves = self.leaves if accumulates and steps.no_optimizer_seen else []
        if leaves and not steps.belongs_to_step(leaves):
            steps.finish()
        if not steps.fast_path_left:
            return False
        values = [loss_value(root) for root in roots]
        if not all_finite(values):
            if not budget.only_counts_bad_losses:
                return False
            budget.count_undiagnosed_loss(steps.index)
        elif budget.only_counts_bad_losses and any(value is not None for value in values):
            budget.note_finite_loss()
        if steps.defers_records and accumulates and not steps.calls_left:
            steps.leave_fast_path()
            return False
        spot = self._names.frames.spot(frame)
        self._remember_call(calls.count, steps.index, spot, calls.node_counts.last_end)
        if accumulates and len(roots) == 1 and calls.count % TIMED_CALL_INTERVAL == SAMPLE_AT:
            self._events.root_sampled.emit(roots[0])
        if accumulates:
            steps.begin_accumulating_call(leaves)
        if steps.defers_records:
            known = [value for value in values if value is not None]
            steps.calls_left -= accumulates
            loss = steps.losses.noted_loss(sum(known) if known else None, roots) if accumulates else NotedLoss()
            steps.noted_calls.append((steps.index, calls.count, loss))
        if accumulates:
            self._events.fast_path_calls.emit(spot, 1)
        calls.count_fast_path_calls(1)
        return calls.node_counts.begin_call() or None

    def add_fast_path_calls(self, count: int, latest: list[tuple[int, int, int, CodeLocation]]) -> None:
        """Count `count` calls that took the fast path, and emit where they were made.

        `latest` holds, for the latest of them, the step, the node counters between which the graph was made, and the
        place.
        """
        self.calls.count_fast_path_calls(count)
        places: dict[CodeLocation | None, int] = {}
        for before, (step, base, now, spot) in enumerate(reversed(latest), 1):
            known = spot if self._names.frames.is_user(spot[0]) else None
            self._remember_call(self.calls.count - before, step, known, base, now)
            places[known] = places.get(known, 0) + 1
        for known, some in (places or {None: 1}).items():
            self._events.fast_path_calls.emit(known, round(count * some / max(len(latest), 1)))
        self.steps.emit_fast_path_steps()

    def begin(self) -> None:
        """Begin an outermost call; end the running step if its optimizer has stepped."""
        self._events.backward_begins.emit()
        if self.steps.has_stepped:
            self.steps.finish()

    def loss_values(self, roots: Sequence[object]) -> list[float | None]:
        """Return the values of `roots` that can be read without waiting for an accelerator."""
        return [loss_value(root) for root in roots]

    def count_call(self, kind: str, roots: Sequence[object], values: Sequence[float | None], frame: FrameType) -> bool:
        """Count a call that is about to be made. Return whether its number of nodes is that of an earlier call."""
        calls = self.calls
        spot, accumulates = self._names.frames.spot(frame), kind != "autograd.grad"
        self._remember_call(calls.count, self.steps.index, spot, calls.node_counts.last_end)
        self._last_spot = spot
        if accumulates:
            self._events.sentinel_call_begins.emit(spot, roots)
        calls.count_call(roots, False, self.leaves if accumulates else None, values)
        return calls.node_counts.begin_call()

    def begin_backward_only(self, running: ActiveBackward) -> bool:
        """Begin a call of which only the backward is recorded. Return whether its number of nodes is known."""
        if running.kind != "autograd.grad":
            self._events.sentinel_call_begins.emit(running.spot, running.roots)
        return self.calls.node_counts.begin_call()

    def end_call(self, kind: str, arguments: dict[str, object]) -> None:
        """Account for a backward call that was only counted, after it has returned: its nodes and the gradients it has
        given.
        """
        self.calls.node_counts.end_call()
        if kind != "autograd.grad":
            self.steps.losses.note_gradients(self.leaves[::-1])
            self._events.sentinel_call_ended.emit(self._last_spot)
        elif not (arguments.get("create_graph") or arguments.get("retain_graph")):
            self.steps.note_autograd_grad()

    def record_nonfinite_loss(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType
    ) -> None:
        """Record a call from a non-finite loss before it is made: its graph still has all saved tensors."""
        running = self.calls.unrecorded_call(kind, roots, arguments, frame, None, ())
        self.calls.flush_values(running)
        self._emit_record(running)

    def find_leaves(self, roots: Sequence[object]) -> None:
        """Take sentinels from the graph of `roots` if none are known."""
        if not self.leaves:
            graph = walk([node_of(root) for root in roots], Plans())
            self._provisional_refs = [private.tensor_ref(leaf) for leaf in far_leaves(graph)]

    def record_nonfinite_gradient(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType
    ) -> None:
        """Record a call that gave non-finite gradients. The node that made the first is inferred from the leaves."""
        running = self.calls.unrecorded_call(kind, roots, arguments, frame, None, ())
        watch, graph = running.watch, running.graph
        order = engine_order(graph.plan, graph.seqs, running.live.needed)
        watch.set_order(order)
        slots: dict[int, int] = {}
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            for i, leaf in graph.leaves:
                if leaf.grad is not None:
                    slots[i] = watch.norms.now(leaf.grad)
                    watch.incoming.append((i, 0, slots[i], leaf.grad.shape, leaf.grad.dtype))
            watch.norms.flush()
        bad = {i: slot in watch.norms.bad for i, slot in slots.items()}
        node = first_bad_node(graph.plan, order, bad, set(graph.custom), self.calls.layouts.new_nodes)
        if node is not None:
            values = next(iter(watch.norms.bad.values()))
            watch.bad_nodes.append(BadNode(node, 0, values, False, (), None, True))
        self._emit_record(running)

    def record_error(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType, error: BaseException
    ) -> None:
        """Record a call that raised."""
        self._emit_record(self.calls.unrecorded_call(kind, roots, arguments, frame, error, None))

    def _emit_record(self, running: ActiveBackward) -> None:
        """Emit the record of a backward call that was not observed while it ran and was diagnosed afterwards; free its
        state.
        """
        numbers = self.steps.call_indices
        if running.index not in numbers[-1:]:
            numbers.append(running.index)
        try:
            self._events.backward_returned.emit(running)
            self._events.backward_recorded.emit(running, self.calls.record_of(running))
        finally:
            running.free()
