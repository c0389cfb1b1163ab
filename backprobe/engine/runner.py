"""One node of a replay: as the engine runs it, by a rule, or in float64."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import BackprobeError
from ..torch_texts import FREED
from . import rules
from .backward_graph import NodeInfo
from .double import widened
from .nested import Inner
from .rerun import call_node_wide, fitted
from .rules import Grads, NodeCall, Rules
from .single import after_tensor_hooks, has_hooks, is_python, run_node
from .start import Start


@dataclass
class ReplayedNode:
    """What one node got and gave.

    :ivar node: which node.
    :ivar received: what came for it, summed, before any hook.
    :ivar grad_outputs: the incoming gradients that it ran with: summed, and as the hooks before it left them.
    :ivar produced: what it gave.
    :ivar grad_inputs: the outgoing gradients, as they went on: others where a person has replaced some.
    :ivar how: ``"engine"`` (as the engine runs it), ``"float64"``, ``"rule PLACE"`` or ``"asked"`` (it was not run:
        its incoming gradients were asked for).
    :ivar note: what was done otherwise than asked for, and why; empty where nothing was.
    :ivar edited_before: whether a person put another gradient in the place of an incoming one.
    :ivar edited_after: and of an outgoing one.
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
    #: Leaf and gradient for each leaf that a backward inside the node has reached.
    inner: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    #: The random state before it ran.
    random: Any = None
    _versions: list[tuple[torch.Tensor, int]] = field(default_factory=list)

    @property
    def edited(self) -> bool:
        return self.edited_before or self.edited_after

    def seal(self) -> None:
        """Note the versions of the gradients, to see later whether somebody wrote into them."""
        every = (*self.received, *self.grad_outputs, *self.produced)
        self._versions = [(g, g._version) for g in every if g is not None and not g.is_inference()]

    @property
    def written(self) -> bool:
        """Whether somebody wrote into a gradient since."""
        return any(g._version != version for g, version in self._versions)


class Runner:
    """Runs the nodes of a replay.

    :param dtype: ``torch.float64``, or ``None``.
    """

    def __init__(self, start: Start, chosen: Rules, dtype: torch.dtype | None) -> None:
        self._start, self._rules, self._wide = start, chosen, dtype is not None

    def run(self, i: int, received: Grads) -> ReplayedNode:
        """Run node `i` with what came for it."""
        graph = self._start.graph
        node, info = graph.nodes[i], graph.infos[i]
        inner = Inner()
        rule = self._rules.at(i)
        note = ""
        incoming = received
        with ExitStack() as stack, torch.set_grad_enabled(self._start.create_graph):
            stack.callback(inner.collect)  # where it raises
            if not graph.runs(i):
                if not self._wide:
                    incoming = after_tensor_hooks(node, received, self._start.create_graph)
                ran = ReplayedNode(info, received, incoming, (), (), "asked")
            elif rule is not None:
                place, function = rule
                call = NodeCall(node, lambda grads: self._node(i, grads, inner)[1])
                out = rules.apply(function, place, info, received, call, len(node.next_functions))
                out = fitted(node, info, out, self._wide)
                ran = ReplayedNode(info, received, received, out, out, f"rule {place}")
            else:
                incoming, out, note = self._node(i, received, inner)
                how = "float64" if self._wide and not note else "engine"
                ran = ReplayedNode(info, received, incoming, out, out, how, note)
            ran.inner = inner.collect()
        ran.seal()
        return ran

    def _node(self, i: int, grads: Grads, inner: Inner) -> tuple[Grads, Grads, str]:
        start = self._start
        node, info = start.graph.nodes[i], start.graph.infos[i]
        try:
            if self._wide and info.seq is None:
                return grads, (), ""
            if self._wide:
                try:
                    note = "its hooks did not run: they do not in float64" if has_hooks(node) else ""
                    return grads, call_node_wide(node, info, grads), note
                except BackprobeError as error:
                    note = str(error)
                narrow = (
                    None if g is None else g.to(m.dtype) for g, m in zip(grads, node._input_metadata, strict=True)
                )
                grads = tuple(narrow)
            else:
                note = ""
            with inner if is_python(node) else nullcontext():
                incoming, out = run_node(node, info, grads, start.create_graph, start.wanted(i))
            return incoming, tuple(map(widened, out)) if self._wide else out, note
        except RuntimeError as error:
            if FREED in str(error):
                raise BackprobeError(
                    f"{info.label} cannot be run: a backward has freed what it had saved. Make the replay before "
                    "loss.backward(), or keep the graph with loss.backward(retain_graph=True)"
                ) from error
            raise
