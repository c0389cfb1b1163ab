"""Backward calls that are only counted: cheap facts about each, and the explanation of a call that failed."""

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

    :param remember: called with what is known of each: index, step, place, and the node counter at which its graph may
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
        self.calls, self._names, self.steps, self._events, self._remember = calls, names, steps, events, remember
        #: Sampled leaves that represent all leaves of a graph, the farthest first.
        self.far: list[weakref.ref[Any]] = []
        #: Leaves of the graph of an unrecorded call, for as long as no others are known.
        self._provisional: list[weakref.ref[Any]] = []
        #: The place of the last counted call.
        self._spot: CodeLocation | None = None

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Take the sampled leaves for later unrecorded calls from a recorded one."""
        if running.inside is None and running.kind != "autograd.grad" and recorded.raised is None:
            self.far = [private.tensor_ref(leaf) for leaf in far_leaves(running.graph)]

    backward_repeated = backward_recorded

    @property
    def step(self) -> int:
        return self.steps.index

    @property
    def witnesses(self) -> list[Any]:
        """A few leaves of the last recorded graph, far from its roots."""
        known = [leaf for leaf in (ref() for ref in self.far) if leaf is not None]
        known = known or self.steps.some_held()
        return known or [leaf for leaf in (ref() for ref in self._provisional) if leaf is not None]

    def lets_pass(self, roots: Any, adds: bool, frame: Any, budget: Budget) -> bool | None:
        """Return whether an outermost call that is about to be made belongs to a fast-path step.

        Returns ``None`` if it does, but its graph has another number of nodes than earlier calls.

        :param adds: whether the call accumulates gradients.
        :param budget: says whether a non-finite loss is only counted.
        """
        steps, calls = self.steps, self.calls
        if steps.stepped:
            steps.finish()
        leaves = self.witnesses if adds and steps.alone else []
        if leaves and not steps.accumulates(leaves):
            steps.finish()
        if not steps.passing:
            return False
        values = [loss_value(root) for root in roots]
        if not all_finite(values):
            if not budget.only_counts:
                return False
            budget.count_bad_loss(steps.index)
        elif budget.only_counts and any(value is not None for value in values):
            budget.good_loss()
        if steps.tells and adds and not steps.room:
            steps.stop_passing()
            return False
        spot = self._names.frames.spot(frame)
        self._remember(calls.count, steps.index, spot, calls.between.over_at)
        if adds and len(roots) == 1 and calls.count % TIMED_CALL_INTERVAL == SAMPLE_AT:
            self._events.root_sampled.emit(roots[0])
        if adds:
            steps.writes(leaves)
        if steps.tells:
            known = [value for value in values if value is not None]
            steps.room -= adds
            loss = steps.losses.noted(sum(known) if known else None, roots) if adds else NotedLoss()
            steps.noted.append((steps.index, calls.count, loss))
        if adds:
            self._events.fast_path_calls.emit(spot, 1)
        calls.count_unobserved(1)
        return calls.between.as_many() or None

    def have_passed(self, count: int, latest: list[tuple[int, int, int, CodeLocation]]) -> None:
        """Account for `count` calls that took the fast path.

        `latest` holds, for the latest of them, the step, the node counters between which the graph was made, and the
        place.
        """
        self.calls.count_unobserved(count)
        places: dict[CodeLocation | None, int] = {}
        for before, (step, base, now, spot) in enumerate(reversed(latest), 1):
            known = spot if self._names.frames.is_user(spot[0]) else None
            self._remember(self.calls.count - before, step, known, base, now)
            places[known] = places.get(known, 0) + 1
        for known, some in (places or {None: 1}).items():
            self._events.fast_path_calls.emit(known, round(count * some / max(len(latest), 1)))
        self.steps.tell_passed()

    def begins(self) -> None:
        """Begin an outermost call: the step before may be over."""
        self._events.backward_begins.emit()
        if self.steps.stepped:
            self.steps.finish()

    def values(self, roots: Sequence[object]) -> list[float | None]:
        """Return the values of `roots` that can be read without waiting for an accelerator."""
        return [loss_value(root) for root in roots]

    def is_usual(self, kind: str, roots: Sequence[object], values: Sequence[float | None], frame: FrameType) -> bool:
        """Count a call. Returns whether as many nodes were made for it as for an earlier one."""
        calls = self.calls
        spot, adds = self._names.frames.spot(frame), kind != "autograd.grad"
        self._remember(calls.count, self.steps.index, spot, calls.between.over_at)
        self._spot = spot
        if adds:
            self._events.sentinel_call_begins.emit(spot, roots)
        calls.count_only(roots, False, self.witnesses if adds else None, values)
        return calls.between.as_many()

    def repeats(self, running: ActiveBackward) -> bool:
        """Begin to record only the backward of `running`.

        Returns whether as many nodes were made for it as for an earlier one.
        """
        if running.kind != "autograd.grad":
            self._events.sentinel_call_begins.emit(running.spot, running.roots)
        return self.calls.between.as_many()

    def over(self, kind: str, arguments: dict[str, object]) -> None:
        """End a call that was counted."""
        self.calls.between.over()
        if kind != "autograd.grad":
            self.steps.losses.gave(self.witnesses[::-1])
            self._events.sentinel_call_ended.emit(self._spot)
        elif not (arguments.get("create_graph") or arguments.get("retain_graph")):
            self.steps.grad_over()

    def begins_bad(self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType) -> None:
        """Record a call from a non-finite loss before it is made: its graph still has all saved tensors."""
        running = self.calls.raised(kind, roots, arguments, frame, None, ())
        self.calls.flush(running)
        self._hand_on(running)

    def look_for_witnesses(self, roots: Sequence[object]) -> None:
        """Take sampled leaves from the graph of `roots` if no others are known."""
        if not self.witnesses:
            graph = walk([node_of(root) for root in roots], Plans())
            self._provisional = [private.tensor_ref(leaf) for leaf in far_leaves(graph)]

    def gave_bad(self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType) -> None:
        """Record a call that gave non-finite gradients. The leaves that got one tell which node made the first."""
        running = self.calls.raised(kind, roots, arguments, frame, None, ())
        watch, graph = running.watch, running.graph
        order = engine_order(graph.plan, graph.seqs, running.live.needed)
        watch.unwatched(order)
        slots: dict[int, int] = {}
        with private.unseen(), private.unnoticed(), torch.no_grad():
            for i, leaf in graph.leaves:
                if leaf.grad is not None:
                    slots[i] = watch.norms.now(leaf.grad)
                    watch.incoming.append((i, 0, slots[i], leaf.grad.shape, leaf.grad.dtype))
            watch.norms.flush()
        bad = {i: slot in watch.norms.bad for i, slot in slots.items()}
        written = torch.autograd.function.BackwardCFunction
        custom = {i for i, node in enumerate(graph.nodes) if isinstance(node, written)}
        node = first_bad_node(graph.plan, order, bad, custom, self.calls.layouts.newcomers)
        if node is not None:
            values = next(iter(watch.norms.bad.values()))
            watch.bad_nodes.append(BadNode(node, 0, values, False, (), None, True))
        self._hand_on(running)

    def failed(
        self, kind: str, roots: Sequence[object], arguments: dict[str, object], frame: FrameType, error: BaseException
    ) -> None:
        """Record a call that raised."""
        self._hand_on(self.calls.raised(kind, roots, arguments, frame, error, None))

    def _hand_on(self, running: ActiveBackward) -> None:
        """Emit the events of a recorded call."""
        numbers = self.steps.backwards
        if running.index not in numbers[-1:]:
            numbers.append(running.index)
        try:
            self._events.backward_returned.emit(running)
            self._events.backward_recorded.emit(running, self.calls.record_of(running))
        finally:
            running.free()
