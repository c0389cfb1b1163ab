"""Explains backward calls that raise: the node, and the code elsewhere that made it raise."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import replace
from typing import NamedTuple

import torch

from ...basics.torch_texts import CHANGED_BY_HOOK, FREED, IN_PLACE, OUT_OF_MEMORY
from ...graphs.plan import running_node
from ...records import Raised, Reuse, Site
from ...source.definitions import function_called, returns_at
from ...source.frames import CodeLocation
from ...source.tracebacks import of_handler
from ...torch_internals import private
from ..forward.observers import ForwardObservers
from ..forward.write_inference import WrittenTensor, inferred_write
from ..forward.writes import mutation, names_of_storage, parameter_with_gradient, variables_of
from ..schedule.step_schedule import StepSchedule
from .active_backward import ActiveBackward
from .carried_results import lines_that_carry
from .failed_allocations import failed_allocation
from .layouts import LiveLayout
from .pending_call_record import Cause


class _FinishedCall(NamedTuple):
    """A call that is over, the lowest sequence number of its graph, and the node counter at its end.

    ``live`` is the layout of its graph; ``None`` if its nodes are not known. ``retained``: it did not free its graph.
    """

    call: int
    step: int
    spot: CodeLocation | None
    live: LiveLayout | None
    base: int
    counter: int
    retained: bool = False

    def ran(self, seq: int) -> bool:
        """Return whether node `seq` belonged to its graph; if the graph is not known, whether it may have."""
        if self.live is None:
            return self.base <= seq < self.counter
        return seq < self.counter and seq + self.live.base - self.base in self.live.seq_set


class Failures:
    """Finds what the error of a backward call refers to."""

    def __init__(self, forward: ForwardObservers, schedule: StepSchedule) -> None:
        self._names, self._frames, self._regions = forward.names, forward.frames, forward.regions
        self._recorder, self._state, self._scanner = forward.recorder, schedule.state, schedule.scanner
        self._finished_calls: deque[_FinishedCall] = deque(maxlen=1024)

    def remember(self, running: ActiveBackward) -> None:
        """Remember a finished call: a later call may go through the same graph again."""
        kept = running.arguments.get("retain_graph")
        retained = bool(running.creates_graph if kept is None else kept)
        seen = (running.live, running.graph.span[0], private.next_sequence_nr(), retained)
        self._finished_calls.append(_FinishedCall(running.index, running.step, running.spot, *seen))

    def remember_unrecorded(
        self, index: int, step: int, spot: CodeLocation | None, base: int, counter: int | None = None
    ) -> None:
        """Remember a call that is not recorded.

        :param base: the node counter at which the new part of its graph begins.
        :param counter: the node counter when the call was made; the current one by default.
        """
        self._finished_calls.append(
            _FinishedCall(index, step, spot, None, base, private.next_sequence_nr() if counter is None else counter)
        )

    def raised_record(self, running: ActiveBackward) -> Raised | None:
        """Return the record of the exception that the call raised, with the node that raised it."""
        error, live, nodes = running.error, running.live, running.graph.nodes
        if error is None:
            return None
        if not isinstance(error, Exception) or of_handler(error):  # a signal handler may raise at any node
            return Raised(type(error).__name__, str(error), None, False, None)
        node, certain = running_node(live.plan, running.graph.seqs, running.watch.order, live.needed)
        inner = self._frames.site_of_traceback(error.__traceback__)
        if inner is None or inner == self._frames.site(running.spot):
            inner = self._backward_of(nodes, node, str(error))
        elif node is not None and not hasattr(nodes[node], "_forward_cls"):
            # The user's code raised, and this node runs none: a hook raised, perhaps one on a leaf.
            certain = False
            hooked = [i for i in live.plan.leaves if nodes[i].variable._backward_hooks]
            node = hooked[0] if len(hooked) == 1 else node
        inferred = running.was_counted if node is None else not self._has_line(running, node)
        return Raised(type(error).__name__, str(error), node, certain, inner, inferred=inferred)

    def _has_line(self, running: ActiveBackward, node: int) -> bool:
        """Return whether the line of a node was observed when it was made; otherwise it is inferred."""
        recorded = self._recorder.recording and running.graph.seqs[node] >= self._state.recorded_from
        return recorded and not running.was_counted

    def _backward_of(self, nodes: list[torch.autograd.graph.Node], node: int | None, text: str) -> Site | None:
        """Return the user's line that the error refers to.

        It is the line of the hook that the error names, or the return of a custom function's backward.
        """
        hook = CHANGED_BY_HOOK.search(text)
        if hook is not None:
            return function_called(self._frames, hook[1])
        named = next((n for n in nodes if hasattr(n, "_forward_cls") and n.name() in text), None)
        for one in (nodes[node] if node is not None else None, named):
            found = returns_at(getattr(one, "_forward_cls", None))
            if found is not None and self._frames.is_users_file(found.file):
                return found
        return None

    def cause(self, node: int, text: str, running: ActiveBackward) -> Cause:
        """Return the cause of an error with `text` at `node`.

        The cause is an in-place write, an earlier call that freed the graph, or the holders of memory.
        """
        if IN_PLACE in text:
            return self._mutation_cause(node, text, running)
        if FREED in text:
            return Cause(reuse=self._reuse(node, running))
        if OUT_OF_MEMORY.search(text):
            return Cause(allocation=failed_allocation(text, running, self._names, sys._getframe(1)))
        return Cause()

    def _mutation_cause(self, node: int, text: str, running: ActiveBackward) -> Cause:
        """Return the cause of an in-place error at `node`: the write to its saved tensor, and what that tensor is.

        An unobserved write is inferred from the source.
        """
        seq, region, writes = running.graph.seqs[node], None, self._regions.writes
        noted = self._has_line(running, node)
        mutated = mutation(text, private.saved_tensors(running.graph.nodes[node]), seq, writes, noted)
        inputs = self._regions.inputs_of(seq)
        if inputs is not None and mutated is not None and mutated.write is None:
            # The recomputation has not begun: one of the inputs that the checkpoint keeps was changed.
            spot, seq, tensors = inputs
            mutated = mutation(text, [("input of the checkpoint", t) for t in tensors], seq, writes, noted)
            region = self._frames.site(spot)
        if mutated is None:
            return Cause(region=region)
        weight = names_of_storage(mutated.storage, self._names.modules)
        called = [] if weight else list(variables_of(mutated.storage, sys._getframe(1), self._frames))
        if mutated.write is None and not noted:
            tensor = WrittenTensor(tuple(called))
            if weight is not None:
                tensor = WrittenTensor((weight[1],), "weight")
            elif parameter_with_gradient(mutated.storage, self._names.modules):
                tensor = WrittenTensor(tuple(called), "gradient")
            failed = self._frames.site(running.spot)
            write = inferred_write(mutated, tensor, seq, failed, self._scanner.latest(), writes, self._frames)
            mutated = replace(mutated, write=write)
        earlier = self._reuse(node, running, retained=True)
        if earlier is not None and earlier.node is None:
            earlier = None  # both calls run the same graph: no result is carried from one to the other
        return Cause(mutated, weight or (called or [""])[0], region, earlier)

    def _reuse(self, node: int, running: ActiveBackward, retained: bool = False) -> Reuse | None:
        """Return the earlier call that ran `node`, and the edge at which the new graph enters the old one.

        :param retained: calls that did not free their graph count, too.
        """
        seqs = running.graph.seqs
        seq = seqs[node]
        for past in reversed(self._finished_calls):
            if past.call == running.index or not past.ran(seq) or (past.retained and not retained):
                continue
            first = _entry_edge(node, running, past.counter)
            site = self._frames.site(past.spot)
            if first is None:
                roots = seqs[: len({id(start) for start in running.starts if start is not None})]
                shared = not any(map(past.ran, roots))
                return Reuse(past.call, site, past.step, None, node, shared)
            lines = lines_that_carry(first[1], running, self._names)
            inferred = not self._has_line(running, first[0])
            return Reuse(past.call, site, past.step, *first, False, *lines, inferred=inferred)
        return None


def _entry_edge(node: int, running: ActiveBackward, counter: int) -> tuple[int, int] | None:
    """Return the edge at which new nodes enter an old graph.

    It is the oldest node made from `counter` on that leads to `node`, with the older node that it passes gradients to.
    """
    seqs, plan = running.graph.seqs, running.live.plan
    into: dict[int, list[int]] = {}
    for i in range(len(seqs)):
        for edge in plan.edges(i):
            if edge is not None:
                into.setdefault(edge[0], []).append(i)
    entries: list[tuple[int, int, int]] = []
    stack, seen = [node], {node}
    while stack:
        old = stack.pop()
        for producer in into.get(old, ()):
            if producer in seen:
                continue
            if seqs[producer] >= counter:
                entries.append((seqs[producer], producer, old))
            else:
                seen.add(producer)
                stack.append(producer)
    return min(entries)[1:] if entries else None
