"""Edits of the gradients at graph nodes: hooks that are put on when a backward call begins, and taken off after it.

Note [Hooks on nodes go with the call]: Nodes exist once a graph does, so a backward call's graph is walked from its
    roots when it begins. A call inside another (a hook that calls ``autograd.grad``) finds nodes that are hooked
    already, and leaves them: one application for each run of a node.
Note [Nodes of chosen modules]: Which module made a node follows from its sequence number: the counter is noted before
    and after each call of a chosen module, by thread.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...basics.select import Choice, Selection, described
from ...torch_internals import autograd_engine, modes
from ...torch_internals.entry_points import node_of
from ...torch_internals.walk import Plans, walk
from .backwards import CallCounter
from .log import EditPlace, Log, Unused
from .rules import Chain, Rule
from .tensors import TensorHooks, first

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

#: Module calls remembered for each thread.
_CALLS = 100_000


class Spans:
    """The sequence numbers of nodes that the chosen modules made (Note [Nodes of chosen modules])."""

    def __init__(self, model: nn.Module, select: Selection) -> None:
        """Register hooks on the modules that `select` chooses.
        :raises BackprobeError: it chooses none.
        """
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._depth = threading.local()
        #: Thread -> beginnings and ends of calls, in order.
        self._spans: dict[int, tuple[list[int], list[int]]] = {}
        fits = Choice(select)
        chosen = [(name, m) for name, m in model.named_modules() if fits(name, m)]
        fits.check([name for name, _ in model.named_modules()], "module")
        for _, module in chosen:
            self._handles.append(module.register_forward_pre_hook(self._hook(module, self._enter)))
            self._handles.append(module.register_forward_hook(self._hook(module, self._leave), always_call=True))

    @staticmethod
    def _hook(mine: nn.Module, step: Callable[[], None]) -> Callable[..., None]:
        """Return a forward hook that calls `step` for calls of the module `mine` only."""
        # A function, not a bound method: a copy of the model copies its hooks, and not us with them.
        ref = weakref.ref(mine)

        def note_call(module: nn.Module, *_: object) -> None:
            """Call `step` if the call is one of `mine`, and not compiled."""
            if not modes.compiling() and ref() is module:
                step()

        return note_call

    def _enter(self) -> None:
        """Note the sequence number at the beginning of an outermost call."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        if not depth:
            begins, ends = self._spans.setdefault(threading.get_ident(), ([], []))
            if len(begins) > _CALLS:
                del begins[: _CALLS // 2], ends[: _CALLS // 2]
            begins.append(autograd_engine.next_sequence_nr())
            ends.append(2**63)

    def _leave(self) -> None:
        """Note the sequence number at the end of an outermost call."""
        depth = getattr(self._depth, "value", 0)
        if not depth:
            return
        self._depth.value = depth - 1
        if depth == 1:
            self._spans[threading.get_ident()][1][-1] = autograd_engine.next_sequence_nr()

    def holds(self, seq: int) -> bool:
        """Return whether a node with this sequence number was made in a chosen module, on this thread."""
        spans = self._spans.get(threading.get_ident())
        if spans is None:
            return False
        at = bisect_right(spans[0], seq) - 1
        return at >= 0 and seq < spans[1][at]

    def stop(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()


class NodeHooks:
    """Hooks on the nodes that rules choose, and on those that go round edited views.

    :param side: ``"in"``: the gradients that come into a node; ``"out"``: those that it gives.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        side: str,
        spans: Spans | None,
        tensors: TensorHooks,
        log: Log,
        calls: CallCounter | None = None,
    ) -> None:
        """Take the rules and the helpers; ``hook`` registers hooks.
        :param spans: restricts the nodes to those that chosen modules made.
        """
        self._rules, self._side, self._spans, self._tensors = list(rules), side, spans, tensors
        self._log = log
        self.calls: Any = calls
        self._plans = Plans(4)
        #: Nodes that have our hooks now, by id; they are alive, as the running call holds them.
        self._hooked: set[int] = set()
        self._lock = threading.RLock()
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        #: Numbers of the rules that chose a node, and names of nodes that were there.
        self.chosen: set[int] = set()
        self.names: set[str] = set()

    def hook(self, roots: list[object]) -> Callable[[], None] | None:
        """Hook the nodes that `roots` (tensors, gradient edges) reach; return a function that removes the hooks.
        :returns: ``None`` if there is nothing to hook.
        """
        if not (self._rules or self._tensors.views):
            return None
        nodes, handles, mine = self._hook(roots)

        def over() -> None:
            """Remove the hooks of this call."""
            with self._lock:
                self._detach(handles)
                self._hooked.difference_update(mine)
            nodes.clear()

        return over

    def hook_for_good(self, roots: list[object]) -> None:
        """Hook the graph of `roots` until ``stop``."""
        _, handles, mine = self._hook(roots)
        with self._lock:
            self._handles.extend(handles)
            self._hooked.difference_update(mine)

    def _hook(self, roots: list[object]) -> tuple[list[torch.autograd.graph.Node], list[RemovableHandle], list[int]]:
        """Hook the nodes that `roots` reach; undo all if that fails.
        :returns: the nodes, the handles of the hooks, and the ids of the nodes that were not hooked before.
        """
        graph = walk([node_of(root) for root in roots], self._plans)
        nodes, seqs, plan = graph.nodes, graph.seqs, graph.plan
        if len(self.names) < 1000:
            self.names.update(plan.names)
        handles: list[torch.utils.hooks.RemovableHandle] = []
        mine: list[int] = []
        with self._lock:
            try:
                self._attach(nodes, seqs, plan.names, handles, mine)
            except BaseException:
                self._detach(handles)
                self._hooked.difference_update(mine)
                raise
        return nodes, handles, mine

    def _attach(
        self,
        nodes: list[torch.autograd.graph.Node],
        seqs: list[int],
        names: list[str],
        handles: list[torch.utils.hooks.RemovableHandle],
        mine: list[int],
    ) -> None:
        """Hook nodes, and the nodes around edited views, unless another call has hooked them.
        :param handles: receives the handles.
        :param mine: receives the ids of the nodes that were not hooked before.
        """
        if self._tensors.views:
            handles.extend(self._tensors.hook_views(nodes, names, seqs, self._hooked))
        for node, seq, name in zip(nodes, seqs, names, strict=True):
            if id(node) in self._hooked:
                continue
            mine.append(id(node))
            if self._rules and (self._spans is None or self._spans.holds(seq)):
                fitting = [rule for rule in self._rules if rule.fits(name, node)]
                if fitting:
                    self.chosen.update(rule.number for rule in fitting)
                    handles.append(self._put(node, name, fitting))
            if self.calls is not None and isinstance(node, torch.autograd.function.BackwardCFunction):
                handles.append(node.register_prehook(self.calls.enter))
                handles.append(node.register_hook(self.calls.leave))
        self._hooked.update(mine)

    def _put(self, node: torch.autograd.graph.Node, name: str, rules: list[Rule]) -> RemovableHandle:
        """Register a hook that applies `rules` to the gradients of `node`; return its handle."""
        chains: dict[int, Chain] = {}

        def edited(grads: Sequence[torch.Tensor | None]) -> object:
            """Return the edited gradients; ``None`` if none has changed."""
            several = sum(g is not None for g in grads) > 1
            result = list(grads)
            for k, grad in enumerate(grads):
                chain = chains.get(k)
                if chain is None:
                    place = EditPlace("node", name, f"[{k}]" if several else "")
                    chain = chains[k] = Chain(place, rules, self._log, self.calls)
                new = chain(grad)
                if new is not None:
                    result[k] = new
            return tuple(result) if any(a is not b for a, b in zip(result, grads, strict=True)) else None

        if self._side == "in":
            return first(node.register_prehook(edited))
        return first(node.register_hook(lambda grad_inputs, grad_outputs: edited(grad_inputs)))

    @staticmethod
    def _detach(handles: list[torch.utils.hooks.RemovableHandle]) -> None:
        """Remove hooks, and empty the list of their handles."""
        while handles:
            handles.pop().remove()

    def stop(self) -> None:
        """Remove all hooks, and those on modules."""
        with self._lock:
            self._detach(self._handles)
        if self._spans is not None:
            self._spans.stop()

    def unused(self, calls: int) -> list[Unused]:
        """Return the rules that were not applied at any node, with reasons.
        :param calls: the number of backward calls so far.
        """
        done = {number for number, where, _ in self._log.counts if where == "node"}
        found = []
        for rule in self._rules:
            if rule.number in done:
                continue
            if not calls:
                reason = "no backward call was seen"
            elif rule.number in self.chosen:
                reason = "no gradient came"
            else:
                shown = ", ".join(sorted(self.names)[:5]) or "none"
                reason = f"no such node in {calls} backward calls; nodes are like {shown}"
            found.append(Unused(f"node {described(rule.select)}", rule.text, reason))
        return found
