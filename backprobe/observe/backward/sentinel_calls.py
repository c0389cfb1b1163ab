"""Backward calls that are only counted: what is cheap to know of each, and what is left of one that went wrong."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
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
from .calls import ActiveBackward, BackwardCalls, all_finite, far_leaves, loss_value
from .fast_path import SHOWN, SOME
from .line_inference import first_bad_node
from .pending_call_record import PendingCallRecord


class SentinelCalls:
    """Tells of them.

    :param remember: called with what is known of each: number, step, place, the counter of nodes at which its graph
        may begin.
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
        #: Leaves that stand for all of a graph, the farthest first.
        self.far: list[weakref.ref[Any]] = []
        #: Where the last call was made that was counted.
        self._spot: CodeLocation | None = None

    def backward_over(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """A call was recorded: its leaves will stand for those of calls that are not."""
        if running.inside is None and running.kind != "autograd.grad" and recorded.raised is None:
            self.far = [private.tensor_ref(leaf) for leaf in far_leaves(running.graph)]

    backward_repeated = backward_over

    @property
    def step(self) -> int:
        return self.steps.index

    @property
    def witnesses(self) -> list[Any]:
        """A few leaves of the last graph that was recorded, far from its roots."""
        known = [leaf for leaf in (ref() for ref in self.far) if leaf is not None]
        return known or self.steps.some_held()

    def lets_pass(self, roots: Any, adds: bool, frame: Any, budget: Budget) -> bool | None:
        """An outermost call from `roots`, made at `frame`, is about to be made in a step that may pass: whether that
        does. ``None``: it does, and other nodes were made for the call than for those before.

        :param adds: whether the call adds gradients.
        :param budget: says whether a loss that is not finite is counted and no more.
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
        if adds and len(roots) == 1 and calls.count % SOME == SHOWN:
            self._events.tell("root_passes", roots[0])
        if adds:
            steps.writes(leaves)
        if steps.tells:
            known = [value for value in values if value is not None]
            steps.room -= adds
            loss = steps.losses.noted(sum(known) if known else None, roots) if adds else NotedLoss()
            steps.noted.append((steps.index, calls.count, loss))
        if adds:
            self._events.tell("calls_passed", spot, 1)
        calls.count += 1
        return calls.between.as_many() or None

    def have_passed(self, count: int, latest: list[tuple[int, int, int, CodeLocation]]) -> None:
        """So many calls have passed; of the `latest`, their steps, the counters of nodes between which their graphs
        were made, and their places."""
        self.calls.count += count
        places: dict[CodeLocation | None, int] = {}
        for before, (step, base, now, spot) in enumerate(reversed(latest), 1):
            known = spot if self._names.frames.is_user(spot[0]) else None
            self._remember(self.calls.count - before, step, known, base, now)
            places[known] = places.get(known, 0) + 1
        for known, some in (places or {None: 1}).items():
            self._events.tell("calls_passed", known, round(count * some / max(len(latest), 1)))
        self.steps.tell_passed()

    def begins(self) -> None:
        """An outermost call is about to be made: the step before may be over."""
        self._events.tell("backward_begins")
        if self.steps.stepped:
            self.steps.finish()

    def values(self, roots: Sequence[Any]) -> list[float | None]:
        """What is known of the values of `roots` without waiting for an accelerator."""
        return [loss_value(root) for root in roots]

    def is_usual(self, kind: str, roots: Sequence[Any], values: Sequence[float | None], frame: Any) -> bool:
        """It is counted. Whether as many nodes were made for it as for one before."""
        calls = self.calls
        spot, adds = self._names.frames.spot(frame), kind != "autograd.grad"
        self._remember(calls.count, self.steps.index, spot, calls.between.over_at)
        self._spot = spot
        if adds:
            self._events.tell("call_counted", spot, roots)
        calls.count_only(roots, False, self.witnesses if adds else None, values)
        return calls.between.as_many()

    def repeats(self, running: ActiveBackward) -> bool:
        """The backward of `running` alone is about to be recorded. Whether as many nodes were made for it as for one
        before."""
        if running.kind != "autograd.grad":
            self._events.tell("call_counted", running.spot, running.roots)
        return self.calls.between.as_many()

    def over(self, kind: str, arguments: dict[str, Any]) -> None:
        """It is over."""
        self.calls.between.over()
        if kind != "autograd.grad":
            self.steps.losses.gave(self.witnesses[::-1])
            self._events.tell("call_over", self._spot)
        elif not (arguments.get("create_graph") or arguments.get("retain_graph")):
            self.steps.grad_over()

    def begins_bad(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any) -> None:
        """It is about to be made from a loss that is not finite: its graph has all that it saved."""
        running = self.calls.raised(kind, roots, arguments, frame, None, ())
        self.calls.flush(running)
        self._hand_on(running)

    def look_for_witnesses(self, roots: Sequence[Any]) -> None:
        """Where none are known: those of the graph of `roots`."""
        if not self.witnesses:
            graph = walk([node_of(root) for root in roots], Plans())
            self.far = [private.tensor_ref(leaf) for leaf in far_leaves(graph)]

    def gave_bad(self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any) -> None:
        """It gave gradients that are not finite: which node that was follows from the leaves that got one."""
        running = self.calls.raised(kind, roots, arguments, frame, None, ())
        watch, graph = running.watch, running.graph
        order = engine_order(graph.plan, graph.seqs, running.live.needed)
        watch.unwatched(order)
        slots: dict[int, int] = {}
        with private.unseen(), private.unnoticed(), torch.no_grad():
            for i, leaf in graph.leaves:
                if leaf.grad is not None:
                    slots[i] = watch.norms.now(leaf.grad)
                    watch.came.append((i, 0, slots[i], leaf.grad.shape, leaf.grad.dtype))
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
        self, kind: str, roots: Sequence[Any], arguments: dict[str, Any], frame: Any, error: BaseException
    ) -> None:
        """It has raised."""
        self._hand_on(self.calls.raised(kind, roots, arguments, frame, error, None))

    def _hand_on(self, running: ActiveBackward) -> None:
        """Tell of it as of one that was recorded."""
        outcome, told = self.calls.outcome, self.steps.backwards
        if running.index not in told[-1:]:
            told.append(running.index)
        try:
            if outcome is not None:
                self._events.tell("backward_ran", running)
                recorded = outcome(running)
                self._events.tell("backward_over", running, recorded)
        finally:
            running.free()
