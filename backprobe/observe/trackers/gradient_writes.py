"""Detects code that writes in place to a gradient that the engine has given to another node too.

Note [One gradient for two nodes]: an operation such as an addition passes the gradient that it gets to each of its
inputs, as one tensor. If a custom function's backward, or a hook on a tensor, changes it in place, the other input gets
the changed values, unless that gradient had been used before, or had been added to others. Both follow from the graph
and the engine's order; whether the tensor is the same and was written to is seen, by its identity and version counter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary

from ...graphs.plan import engine_order
from ...graphs.reaches import parameters_behind
from ...records import GradientOverwritten
from ...source.definitions import backward_code, result_of
from ...source.frames import CodeLocation
from ...torch_internals.node_hooks import NodeHooks
from ...torch_internals.replicas import version_of
from ..backward.active_backward import ActiveBackward
from ..backward.layouts import LiveLayout
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of backward calls of a layout that are examined, of a run, and nodes of a call.
MAX_CALLS_PER_LAYOUT, MAX_CALLS, MAX_NODES = 3, 192, 64
#: Maximum number of records, and of hooks whose line is remembered.
MAX_RECORDS, MAX_REMEMBERED_HOOKS = 8, 10_000


@dataclass(frozen=True)
class _Shared:
    """A gradient that node ``giver`` passes to ``receiver``, which may write to it, and later to ``other``.

    :ivar slot, other_slot: the numbers of these gradients among those that ``giver`` returns.
    """

    giver: int
    slot: int
    receiver: int
    other_slot: int
    other: int


@dataclass
class _Examined:
    """A layout's nodes of custom functions, and the number of its examined calls by the nodes that may write."""

    custom: list[int]
    calls: Counter[tuple[int, ...]] = field(default_factory=Counter)


class GradientWriteTracker(Tracker):
    """Tracker of in-place writes to gradients by custom functions and hooks."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without layouts."""
        self._context, self._names, self._frames = context, context.names, context.frames
        self._handles = NodeHooks()
        self._layouts: WeakKeyDictionary[LiveLayout, _Examined] = WeakKeyDictionary()
        self._calls_left = MAX_CALLS
        #: By sequence number of a node whose tensor got a hook in this forward: the hook's code, and the line that
        #: registered it.
        self._hooks: dict[int, tuple[CodeType | None, CodeLocation | None]] = {}
        #: By receiver: the id of the shared tensor that it gets, and the version counter when it was given.
        self._given: dict[int, tuple[int, int]] = {}
        self._found: dict[object, GradientOverwritten] = {}

    def hook_registered(self, tensor: Any, hook: object, frame: FrameType) -> None:
        """Remember the code and the line of a hook that the script registers on a tensor with a node."""
        if len(self._hooks) >= MAX_REMEMBERED_HOOKS:
            self._hooks.clear()
        self._hooks[tensor.grad_fn._sequence_nr()] = getattr(hook, "__code__", None), self._frames.spot(frame)

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Register hooks that watch the gradients which a custom function or a hook shares with another node, in few
        calls.
        """
        if not self._calls_left or len(self._found) >= MAX_RECORDS:
            return
        graph, layout = running.graph, self._layouts.get(running.live)
        if layout is None:
            layout = self._layouts[running.live] = _Examined(graph.custom)
        writers = tuple(self._writers(running, layout.custom)[:MAX_NODES])
        if not writers or layout.calls[writers] >= MAX_CALLS_PER_LAYOUT:
            return
        layout.calls[writers] += 1
        self._calls_left -= 1
        self._given.clear()
        contained = self._context.events.contained
        for one in shared_gradients(running, writers):
            giver, receiver = graph.nodes[one.giver], graph.nodes[one.receiver]
            self._handles.put([(giver.register_hook, contained(self, self._note_given, one))])
            before = contained(self, self._record_if_written, running, one, "hook")
            after = contained(self, self._record_if_written, running, one, "backward")
            self._handles.put([(receiver.register_prehook, before)])
            self._handles.put([(receiver.register_hook, lambda grad_inputs, grads, after=after: after(grads))])

    def _writers(self, running: ActiveBackward, custom: list[int]) -> list[int]:
        """Return the nodes of custom functions, and those on whose result a hook was registered."""
        graph = running.graph
        if not self._hooks or max(self._hooks) < graph.span[0]:
            return custom
        return [*custom, *(i for i, seq in enumerate(graph.seqs) if seq in self._hooks and i not in custom)]

    def backward_detaching(self, running: ActiveBackward) -> None:
        """Remove our hooks; after an outermost call, forget the script's hooks, whose graph is gone."""
        self._handles.remove()
        if running.inside is None:
            self._hooks.clear()

    def observing_pauses(self) -> None:
        """Remove our hooks."""
        self._handles.remove()

    def _note_given(self, shared: _Shared, grad_inputs: Sequence[Any], grad_outputs: object) -> None:
        """Note the identity and version of a gradient that the giver has just returned for two nodes.

        A hook of the giver.
        """
        grad, other = grad_inputs[shared.slot], grad_inputs[shared.other_slot]
        if grad is not None and other is grad:
            self._given[shared.receiver] = id(grad), version_of(grad)

    def _record_if_written(self, running: ActiveBackward, shared: _Shared, by: str, grads: Sequence[Any]) -> None:
        """Record a write to the gradient that `shared` describes since it was given away."""
        tensor, version = self._given.get(shared.receiver, (0, 0))
        if any(id(grad) == tensor and version_of(grad) > version for grad in grads):
            del self._given[shared.receiver]
            self._record(running, shared, by)

    def _record(self, running: ActiveBackward, shared: _Shared, by: str) -> None:
        """Make the record of a write to a shared gradient, once for each line of a call and code that writes.

        :param by: ``hook`` or ``backward``: what wrote.
        """
        maker: Any = running.graph.nodes[shared.receiver]
        code, spot = self._hooks.get(running.graph.seqs[shared.receiver], (None, None))
        if by == "backward":
            code = backward_code(maker._forward_cls)
        key = running.spot, code, by
        if key in self._found or len(self._found) >= MAX_RECORDS:
            return
        nodes = running.live.layout(self._names).nodes
        receiver, giver = nodes[shared.receiver], nodes[shared.giver]
        self._found[key] = GradientOverwritten(
            running.step,
            by,
            receiver.name,
            receiver.op or receiver.name,
            receiver.module,
            giver.op or giver.name,
            parameters_behind(nodes, shared.other),
            result_of(code) if code is not None else None,
            receiver.site if by == "backward" else self._frames.site(spot),
            giver.site,
            self._frames.site(running.spot),
        )

    def records(self) -> tuple[GradientOverwritten, ...]:
        """Return the records of gradients that were overwritten."""
        return tuple(self._found.values())


def shared_gradients(running: ActiveBackward, writers: Sequence[int]) -> Iterator[_Shared]:
    """Yield the gradients that a node may give to one of `writers` and, as the same tensor, to a node that runs later.

    See Note [One gradient for two nodes]. A receiver whose input has several producers is left out: it gets a sum.
    """
    if not writers:
        return
    plan, needed = running.graph.plan, running.live.needed
    ran = {node: at for at, node in enumerate(engine_order(plan, running.graph.seqs, needed))}
    edges = list(zip(plan.targets, plan.numbers, strict=True))
    producers: dict[tuple[int, int], list[int]] = {}
    for at, edge in enumerate(edges):
        giver = bisect_right(plan.starts, at) - 1
        if edge[0] >= 0 and giver in ran and edge[0] in ran:
            producers.setdefault(edge, []).append(giver)
    wanted = set(writers)
    for (receiver, _), givers in producers.items():
        if receiver not in wanted or len(givers) != 1:
            continue
        giver = givers[0]
        first, end = plan.starts[giver], plan.starts[giver + 1]
        slot = next(at for at in range(first, end) if edges[at][0] == receiver)
        for at in range(first, end):
            other = edges[at]
            if other[0] == receiver or ran.get(other[0], -1) < ran[receiver]:
                continue
            if all(ran[one] >= ran[giver] for one in producers[other]):
                yield _Shared(giver, slot - first, receiver, at - first, other[0])
                break
