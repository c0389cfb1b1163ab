"""Runs one node of a replay: as the engine runs it, by a rule, or in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from . import rules
from .backward_graph import NodeInfo
from .calling import fitted
from .rules import Grads, NodeCall, Rules
from .single import How, Ran, after_tensor_hooks, before_wide, run_node
from .start import Start


@dataclass
class ReplayedNode:
    """The record of one node's run in a replay.

    :ivar node: the node.
    :ivar received: its summed incoming gradients, before any hook.
    :ivar grad_outputs: its incoming gradients after the hooks before it.
    :ivar produced: its outgoing gradients.
    :ivar grad_inputs: the outgoing gradients that were passed on, after the user's replacements.
    :ivar how: ``"engine"`` (as the engine runs it), ``"float64"``, ``"rule PLACE"`` or ``"asked"`` (not run: its
        incoming gradients were requested).
    :ivar note: deviations from the request, with the reason; empty if none.
    :ivar edited_before: whether the user replaced an incoming gradient.
    :ivar edited_after: whether the user replaced an outgoing gradient.
    """

    node: NodeInfo
    received: Grads
    grad_outputs: Grads
    produced: Grads
    grad_inputs: Grads
    how: str = "engine"
    note: str = ""
    edited_before: bool = False
    edited_after: bool = False
    #: Leaf and gradient for each leaf that a backward inside the node reached.
    inner: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    #: The random state before it ran.
    random: Any = None
    _versions: list[tuple[torch.Tensor, int]] = field(default_factory=list)

    @property
    def edited(self) -> bool:
        """Whether the user replaced an incoming or outgoing gradient."""
        return self.edited_before or self.edited_after

    def seal(self) -> None:
        """Store the versions of the gradients, to detect later writes to them."""
        every = (*self.received, *self.grad_outputs, *self.produced)
        self._versions = [(g, g._version) for g in every if g is not None and not g.is_inference()]

    @property
    def written(self) -> bool:
        """Whether a gradient was written to since ``seal``."""
        return any(g._version != version for g, version in self._versions)


class Runner:
    """Runs the nodes of a replay.

    :param dtype: ``torch.float64``, or ``None``.
    """

    def __init__(self, start: Start, chosen: Rules, dtype: torch.dtype | None) -> None:
        """Take the arguments of the backward, and the rules that replace nodes."""
        self._start, self._rules, self._wide = start, chosen, dtype is not None

    def run(self, i: int, received: Grads) -> ReplayedNode:
        """Run node `i` on the gradients it received, by its rule if it has one; return the record."""
        graph = self._start.graph
        node, info = graph.nodes[i], graph.info(i)
        rule = self._rules.at(i)
        inner: list[tuple[torch.Tensor, torch.Tensor]] = []
        if not graph.runs(i):
            incoming, note = self._asked(node, received)
            ran = ReplayedNode(info, received, incoming, (), (), "asked", note)
        elif rule is not None:
            place, function = rule

            def real(grads: Grads) -> Grads:
                """Run the replaced node itself on `grads`, for a rule that calls it; return its outgoing gradients."""
                one = self._node(i, grads)
                inner.extend(one.inner)
                return one.outgoing

            with torch.set_grad_enabled(self._start.create_graph):
                call = NodeCall(node, real)
                out = rules.apply(function, place, info, received, call, len(node.next_functions))
                out = fitted(node, info, out, self._wide)
            ran = ReplayedNode(info, received, received, out, out, f"rule {place}", inner=inner)
        else:
            one = self._node(i, received)
            how = "float64" if one.wide else "engine"
            ran = ReplayedNode(info, received, one.incoming, one.outgoing, one.outgoing, how, one.note, inner=one.inner)
        ran.seal()
        return ran

    def _asked(self, node: object, received: Grads) -> tuple[Grads, str]:
        """Return the incoming gradient of a node that is requested and does not run, after its tensors' hooks; and a
        note.
        """
        start = self._start
        if self._wide:
            return before_wide(node, received, False)
        with torch.set_grad_enabled(start.create_graph):
            return after_tensor_hooks(node, received, start.create_graph), ""

    def _node(self, i: int, grads: Grads) -> Ran:
        """Run node `i` as the engine does, or in float64, with hooks; return its gradients."""
        start = self._start
        how = How(True, start.create_graph, self._wide, start.wanted(i))
        return run_node(start.graph.nodes[i], start.graph.info(i), grads, how)
