"""The hooks on the nodes of one backward call, and the gradients that they measured.

Note [Each gradient measured once]: the engine passes a gradient on unchanged if a node's input has one producer, so the
gradient is measured when it is made. If there are several producers, the engine adds their gradients, and the sum is
measured at the receiver. A gradient that a node passes on unchanged (as an addition does) is the same tensor object,
and is not measured again.

Note [No gradient is held]: hooks hold no gradient after they return, except small ones in a batch (``measure.Norms``);
and never one that an accumulator could take as ``.grad``.

Note [Unseen by the user's modes]: if a dispatch mode or a profiler of the user is on, it does not see what we compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ...graphs.packed_calls import SAME
from ...graphs.plan import Plan
from ...records import BadNode
from ...torch_internals import private
from ...torch_internals.measure import Norms, bad_values, stat_of
from .measurement_plan import MeasurementPlan, Rows
from .node_hooks import Hooks

_clock = time.perf_counter
#: The most nodes with bad gradients that one backward call describes in full.
MAX_DESCRIBED_BAD_NODES = 20


@dataclass(frozen=True)
class MeasurementMode:
    """How the gradients of a backward call are measured.

    :ivar inspecting: measure every gradient at once, and inspect a node that makes a bad one while its saved tensors
        exist. Otherwise small gradients are measured in batches.
    :ivar brief: do not count the elements of bad gradients.
    :ivar create_graph: gradient mode is on in the hooks and has to be turned off while we measure.
    """

    inspecting: bool
    brief: bool = False
    create_graph: bool = False


@dataclass(frozen=True)
class PythonNodes:
    """Callbacks around nodes that run Python code: custom functions, reentrant checkpoints, hooks.

    :ivar enter: called before such a node; `leave` is called after it.
    :ivar within: more nodes of that kind than the custom functions: those whose saved tensors a checkpoint recomputes.
    :ivar entered: nodes for which a hook on their tensor called `enter`: `leave` is called before them.
    """

    enter: Callable[..., None]
    leave: Callable[..., None]
    within: Sequence[int] = ()
    entered: Iterable[int] = ()


class NodeHookSet:
    """Hooks on the nodes of one backward call, and their measurements, as flat lists.

    :param before: nodes whose incoming gradients are measured, in addition to those with several producers: roots, and
        nodes with hooks of the user.
    :param measurement_plan: the measurements of an earlier call over this graph.
    :param python: callbacks around nodes that run Python code; ``None``: no callbacks.
    """

    def __init__(
        self,
        nodes: list[torch.autograd.graph.Node],
        plan: Plan,
        before: Iterable[int],
        hooks: Hooks,
        mode: MeasurementMode,
        measurement_plan: MeasurementPlan | None = None,
        python: PythonNodes | None = None,
    ) -> None:
        """Prepare the hooks and the lists for measurements; ``start`` registers the hooks."""
        self.nodes, self.plan, self.hooks = nodes, plan, hooks
        #: Whether a dispatch mode or a profiler of the user would see what we compute:
        #: Note [Unseen by the user's modes].
        self._is_hidden = private.in_mode() or private.profiled()
        self.norms = Norms(brief=mode.brief, plain=private.in_mode())
        self.order: list[int] = []
        #: The times at which hooks were entered and left, in turn; the first is the start.
        self.times: list[float] = []
        #: (node, output, slot, shape, dtype) of outgoing gradients; in a call with a plan, only of those that differ
        #: from it.
        self.out: list[tuple[int, int, int, Any, Any]] = []
        #: (node, input, slot, shape, dtype) of incoming gradients that were measured on their own.
        self.incoming: list[tuple[int, int, int, Any, Any]] = []
        self.bad_nodes: list[BadNode] = []
        #: With ``create_graph``: each node that ran, and the node counter after it.
        self.counters_after: list[tuple[int, int]] | None = [] if mode.create_graph else None
        at_once = mode.inspecting or mode.create_graph or self._is_hidden
        self.measurement_plan = None if at_once else measurement_plan
        #: Gradients of the plan that did not come this time: (node, number).
        self.missing: set[tuple[int, int]] = set()
        self.held_nodes: set[int] = set()
        #: The pending small gradients of held nodes since the last flush, in the order in which the nodes ran.
        self.pending: list[Any] = []
        self._flushes, self._flushed = 0, 0
        self._seen_incoming: set[tuple[int, int]] = set()
        self._before_nodes = {*plan.met, *before}
        self._python = python
        self._handles = private.NodeHooks()
        self._spent_before = 0.0
        self.on_error: Any = None
        if self.measurement_plan is not None:
            self.norms.values = [0.0] * self.measurement_plan.slot_count
            if len(self.measurement_plan.last_norms) >= self.measurement_plan.slot_count:
                self.norms.hints = self.measurement_plan.last_norms  # see Note [Tiny gradients]
            self.held_nodes = self.measurement_plan.held_nodes
        #: Hook calls with gradients that have no shape (nested tensors), which could not be recorded.
        self.unshaped = 0
        self.after = (
            self._after_hidden
            if self._is_hidden
            else self._after_at_once
            if at_once
            else self._after
            if self.measurement_plan is None
            else self._after_planned
        )

    def start(self, on_node: Callable[[int, object, object], None] | None = None) -> None:
        """Register the hooks. `on_node` is called with each node that ran, and its gradients."""
        try:
            self._attach()
            if on_node is not None:
                self._handles.put((self.nodes[i].register_hook, partial(on_node, i)) for i in self.plan.hooked)
        except BaseException:
            self._handles.remove()
            raise
        self.hooks.running.append(self)
        self.times.append(_clock())

    def _attach(self) -> None:
        """Register the hooks on all nodes to be measured, and the callbacks around nodes that run Python."""
        nodes, plan, put = self.nodes, self.plan, self._handles.put
        after, held, before = self.hooks.grow(len(nodes))
        waits = self.held_nodes
        put([(nodes[i].register_hook, held[i] if i in waits else after[i]) for i in plan.hooked])
        put([(nodes[i].register_prehook, before[i]) for i in self._before_nodes])
        python = self._python
        if python is not None:
            put((nodes[i].register_prehook, python.leave) for i in python.entered)
            custom = [i for i in plan.hooked if isinstance(nodes[i], torch.autograd.function.BackwardCFunction)]
            within = {*custom, *python.within}
            put((nodes[i].register_prehook, python.enter) for i in within)
            put((nodes[i].register_hook, python.leave) for i in within)

    def stop(self) -> None:
        """Remove the hooks, and measure pending gradients. Norms on an accelerator are not read yet."""
        self.hooks.running.pop()
        self._handles.remove()
        with private.hide_from_dispatch_modes():
            self.flush()
            self.norms.flush_batches()
        if self.measurement_plan is not None:
            self.measurement_plan.last_norms = self.norms.values

    def set_order(self, ran: Iterable[int]) -> None:
        """Record the nodes `ran` of a call that had no hooks; their times are unknown."""
        hooked = set(self.plan.hooked)
        self.order = [i for i in ran if i in hooked]
        self.times = [0.0] * (2 * len(self.order) + 1)

    def release(self) -> None:
        """Release the graph at once.

        ``after`` is bound to this object, and the reference cycle would wait for the garbage collector.
        """
        self.nodes, self.pending, self.after = [], [], None  # type: ignore[assignment]

    @property
    def seconds(self) -> list[float]:
        """The seconds of each node in ``order``: from the end of the hook before to the beginning of its own."""
        times = self.times
        return [b - a for a, b in zip(times[0::2], times[1::2], strict=False)]

    @property
    def seconds_in_hooks(self) -> float:
        """The seconds spent in the hooks."""
        times = self.times
        return sum(times[2::2]) - sum(times[1 : len(times) - 1 : 2]) + self._spent_before if len(times) > 2 else 0.0

    def rows_if_changed(self) -> Rows | None:
        """Return the order of the nodes and the measured gradients, planned or not; ``None`` if all went as planned."""
        measurement_plan = self.measurement_plan
        if measurement_plan is None:
            return self.order, self.out, self.incoming
        incoming_same = len(self._seen_incoming) == len(measurement_plan.incoming)
        if (
            not self.out
            and not self.missing
            and not self.incoming
            and incoming_same
            and self.order == measurement_plan.order
        ):
            return None
        ran, new = set(self.order), {(m[0], m[1]) for m in self.out}
        out = [m for m in measurement_plan.out if m[0] in ran and (m[0], m[1]) not in new | self.missing]
        incoming = [m for m in measurement_plan.incoming if (m[0], m[1]) in self._seen_incoming]
        return self.order, out + self.out, incoming + self.incoming

    def count_error(self, error: Exception, grads: Any) -> None:
        """Account for an error in a hook: gradients without a shape are counted, other errors go to ``on_error``."""
        if any(g is not None and g.is_nested for g in grads):
            self.unshaped += 1
        else:
            self.on_error(error)

    def before(self, i: int, grad_outputs: object) -> None:
        """Measure the gradients that node `i` received. A pre-hook; its time is counted as ours, not as the node's."""
        begin = _clock()
        if self._is_hidden:
            with private.hide_ops():
                self._before(i, grad_outputs)
        else:
            self._before(i, grad_outputs)
        spent = _clock() - begin
        self._spent_before += spent
        self.times[-1] += spent

    def _before(self, i: int, grad_outputs: Any) -> None:
        """Measure the gradients that node `i` received, into the plan's slots if they are as planned."""
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            known = self.measurement_plan.incoming_slots if self.measurement_plan is not None else None
            for k, g in enumerate(grad_outputs):
                if g is None:
                    continue
                m = known.get((i, k)) if known is not None else None
                if m is not None and m[3] == g.shape and m[4] is g.dtype:
                    self._seen_incoming.add((i, k))
                    self.norms.into(m[2], g)
                else:
                    self.incoming.append((i, k, self.norms.now(g), g.shape, g.dtype))
        finally:
            torch._C._set_grad_enabled(was)

    def _after(self, i: int, grad_inputs: Any, grad_outputs: Any) -> None:
        """Record all gradients that node `i` returned. Used while there is no plan."""
        out, incoming = self.out, grad_outputs[0] if grad_outputs else None
        norms = self.norms
        measure = norms.take
        if i in self.plan.to_leaf:
            measure = norms.now
            if any(g is not None and any(g is o for o in grad_outputs) for g in grad_inputs):
                norms.flush_batches()  # a gradient that is passed on to an accumulator may be in a pending batch
        for k, g in enumerate(grad_inputs):
            if g is not None:
                out.append((i, k, SAME if g is incoming else measure(g), g.shape, g.dtype))

    def _after_planned(self, i: int, grad_inputs: Any, grad_outputs: Any) -> None:
        """Measure the results of node `i` at once as planned: it is not among the held nodes whose gradients are
        batched.

        What differs from the plan is added to ``out`` and ``missing``.
        """
        row = self.measurement_plan.rows.get(i, ())  # type: ignore[union-attr]
        norms = self.norms
        at = 0
        for k, g in enumerate(grad_inputs):
            if g is None:
                if at < len(row) and row[at][0] == k:
                    self.missing.add((i, k))
                    at += 1
                continue
            if at < len(row) and row[at][0] == k:
                _, slot, shape, dtype = row[at]
                at += 1
                if slot < 0 and SAME - slot < len(grad_outputs) and grad_outputs[SAME - slot] is g:
                    if self.pending and i in self.plan.to_leaf:
                        self.flush()
                    continue
                if slot >= 0 and g.shape == shape and g.dtype is dtype:
                    norms.into(slot, g)
                    continue
            self.out.append((i, k, norms.now(g), g.shape, g.dtype))

    def flush(self) -> None:
        """Measure the pending small gradients together, as the plan groups them; one by one if they differ from the
        plan.
        """
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        ran, self._flushed = self.order[self._flushed :], len(self.order)
        measurement_plan, number = self.measurement_plan, self._flushes
        assert measurement_plan is not None
        self._flushes += 1
        window = measurement_plan.window(number, ran)
        regular = not any(pending[at][k] is not None for at, k in window.absent)
        for shape, dtype, slots, places in window.groups if regular else ():
            if self.norms.alike(slots, [pending[at][k] for at, k in places], shape, dtype) < len(slots):
                regular = False
                break
        if not regular:
            self._one_by_one([i for i in ran if i in self.held_nodes], pending)

    def _one_by_one(self, nodes: list[int], pending: list[Any]) -> None:
        """Measure the gradients of held nodes one by one, if they differ from the plan."""
        assert self.measurement_plan is not None
        norms = self.norms
        for i, grads in zip(nodes, pending, strict=True):
            row = {k: (slot, shape, dtype) for k, slot, shape, dtype in self.measurement_plan.rows[i]}
            for k, g in enumerate(grads):
                slot, shape, dtype = row.get(k, (None, None, None))
                if g is None:
                    if slot is not None:
                        self.missing.add((i, k))
                elif slot is not None and g.shape == shape and g.dtype is dtype:
                    norms.into(slot, g)
                else:
                    self.out.append((i, k, norms.now(g), g.shape, g.dtype))

    def _after_hidden(self, i: int, grad_inputs: object, grad_outputs: object) -> None:
        """Measure the results of node `i` at once, unseen by a dispatch mode or profiler of the user."""
        with private.hide_ops():
            self._after_at_once(i, grad_inputs, grad_outputs)

    def _after_at_once(self, i: int, grad_inputs: Any, grad_outputs: Any) -> None:
        """Measure every result of node `i` at once, and describe the node if one is bad."""
        was = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            norms = self.norms
            if self.counters_after is not None:
                self.counters_after.append((int(i), private.next_sequence_nr()))
            for k, g in enumerate(grad_inputs):
                if g is None:
                    continue
                same = next((j for j, o in enumerate(grad_outputs) if o is g), None)
                slot = SAME - same if same is not None else norms.now(g)
                self.out.append((i, k, slot, g.shape, g.dtype))
                if slot in norms.bad:
                    self._describe_bad_node(i, k, slot, grad_outputs)
        finally:
            torch._C._set_grad_enabled(was)

    def _describe_bad_node(self, i: int, k: int, slot: int, grad_outputs: Any) -> None:
        """Describe node `i`, which made a bad gradient out of finite ones, with statistics of its saved tensors.

        :param k: which of its results is bad; `slot`: where that was measured.
        """
        saved = private.saved_tensors(self.nodes[i])
        if self.norms.plain and not all(
            g is None or private.is_plain(g) for g in (*grad_outputs, *dict(saved).values())
        ):
            return
        if len(self.bad_nodes) >= MAX_DESCRIBED_BAD_NODES or any(
            bad_values(o) is not None for o in grad_outputs if o is not None
        ):
            return
        stats = tuple(stat_of(name, t) for name, t in saved)
        zero = any(o is not None and bool((o == 0).any()) for o in grad_outputs)
        self.bad_nodes.append(BadNode(int(i), k, self.norms.bad[slot], zero, stats))
