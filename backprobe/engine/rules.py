"""Rules that replace a node in a replay.

A rule is ``rule(node, grads, call)``: the node that it replaces, its incoming gradients (one for each output of its
forward, ``None`` for an output that got none), and a ``NodeCall``, which can run the node itself. It returns one
gradient for each input of the node's forward: a tuple of tensors or ``None``, or a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from ..basics.errors import BackprobeError
from ..records import ACCUMULATE_SEQ
from ..torch_internals import private
from .backward_graph import BackwardGraph, NodeInfo
from .breakpoints import Breakpoint
from .options import breakpoint_from

Grads: TypeAlias = tuple["torch.Tensor | None", ...]
Rule: TypeAlias = Callable[[NodeInfo, Grads, "NodeCall"], "torch.Tensor | Sequence[torch.Tensor | None] | None"]


class NodeCall:
    """The node that a rule replaces.

    Calling it runs the node (with its hooks, if the replay runs hooks) on gradients that the rule chooses:
    ``call(*grads)`` is the tuple of its outgoing gradients.
    """

    def __init__(self, node: torch.autograd.graph.Node, run: Callable[[Grads], Grads]) -> None:
        """Take the node and the function that runs it: incoming gradients in, outgoing gradients out."""
        self._node, self._run = node, run

    def __call__(self, *grads: torch.Tensor | None) -> Grads:
        """Run the node on `grads`, its incoming gradients, and return its outgoing gradients."""
        return self._run(grads)

    @property
    def saved(self) -> dict[str, torch.Tensor]:
        """The node's saved tensors, by name; those behind a saved-tensor hook are omitted."""
        return dict(private.saved_tensors(self._node))

    @property
    def leaves(self) -> tuple[torch.Tensor | None, ...]:
        """For each input of the node's forward: the tensor if it is a leaf that receives a gradient (a parameter), else
        ``None``.
        """
        return tuple(
            child.variable if child is not None and child._sequence_nr() == ACCUMULATE_SEQ else None
            for child, _ in self._node.next_functions
        )


class Rules:
    """Maps nodes of a graph to the rules that replace them.

    :param rules: place -> rule; a place is the text form of ``break_at`` without a condition. The first match is used.
    :raises BackprobeError: a place matches no node, has a condition or a phase, or matches accumulators.
    """

    def __init__(self, rules: Mapping[str, Rule], graph: BackwardGraph) -> None:
        """Find the nodes of `graph` that each place matches."""
        if not isinstance(rules, Mapping):
            raise BackprobeError(f"rules is a {type(rules).__name__}; give a dict such as {{'ReluBackward0': rule}}")
        self._at: dict[int, tuple[str, Rule]] = {}
        for place, rule in rules.items():
            if not callable(rule):
                raise BackprobeError(f"the rule for {place!r} is a {type(rule).__name__}; it is a function")
            point = _place(place)
            point.check(graph)
            fits = [i for i in graph.infos if graph.runs(i.index) and point.fits(i)]
            fits = [i for i in fits if i.seq is not None]
            if not fits:
                raise BackprobeError(
                    f"{place!r} means accumulators only: they pass nothing on, so no rule can stand there"
                )
            for info in fits:
                self._at.setdefault(info.index, (place, rule))

    def at(self, i: int) -> tuple[str, Rule] | None:
        """Return the place and the rule that replace node `i`; ``None`` if the node runs normally."""
        return self._at.get(i)


def _place(place: str) -> Breakpoint:
    """Parse the place of a rule into a breakpoint that is used only to match nodes.
    :raises BackprobeError: it has a condition or a phase, or stops at a module's start or end.
    """
    point = breakpoint_from(place, {})
    if point.when is not None or point.on is not None or point.phase != "before" or point.bare:
        raise BackprobeError(f"the place of a rule is {place!r}; it cannot have a condition, a phase or 'enter'")
    return point


def apply(rule: Rule, place: str, info: NodeInfo, grads: Grads, call: NodeCall, count: int) -> Grads:
    """Apply `rule`, and check its result.

    :param count: number of outgoing gradients of the node.
    :raises BackprobeError: the result has another number of gradients, or is not made of tensors.
    """
    result = rule(info, grads, call)
    if result is None or isinstance(result, torch.Tensor):
        result = (result,)
    out = tuple(result)
    what = f"the rule for {place!r} at {info.label}"
    if len(out) != count:
        raise BackprobeError(
            f"{what} gave {len(out)} gradients; the node has {count} inputs: give None where there is none"
        )
    for k, grad in enumerate(out):
        if grad is not None and not isinstance(grad, torch.Tensor):
            raise BackprobeError(f"{what} gave a {type(grad).__name__} for input {k}; give a tensor or None")
    return out


# Common rules


def guided(node: NodeInfo, grads: Grads, call: NodeCall) -> Grads:
    """Apply guided backpropagation, for ``ReluBackward0`` and similar nodes: only positive gradients go into the node.

    Springenberg et al., Striving for Simplicity: The All Convolutional Net, 2015.
    """
    return call(*(None if g is None else g.clamp(min=0) for g in grads))


def deconvnet(node: NodeInfo, grads: Grads, call: NodeCall) -> Grads:
    """Apply the deconvolutional network's rule for a ReLU: positive gradients pass, whatever the forward was.

    Zeiler and Fergus, Visualizing and Understanding Convolutional Networks, 2014.
    """
    return tuple(None if g is None else g.clamp(min=0) for g in grads)


def straight_through(node: NodeInfo, grads: Grads, call: NodeCall) -> Grads:
    """Pass the gradient on unchanged, for nodes with one input and one output of the same shape."""
    return grads


class epsilon:
    """Layer-wise relevance propagation with the epsilon rule, for linear layers (``AddmmBackward0``).

    The gradients are then relevances: R_in = x * (W^T (R_out / (z + eps sign z))), where z is the layer's output. The
    bias's share is not passed on.

    Bach et al., On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance Propagation,
    2015.

    :param eps: stabiliser, in the units of z.
    """

    def __init__(self, eps: float = 1e-6) -> None:
        self.eps = eps

    def __call__(self, node: NodeInfo, grads: Grads, call: NodeCall) -> Grads:
        """Apply the rule: return the relevances of the layer's inputs for the relevance `grads` of its output.
        :raises BackprobeError: the node did not save both the layer's input and its weight.
        """
        saved, leaves = call.saved, call.leaves
        x, weight, relevance = saved.get("mat1"), saved.get("mat2"), grads[0]
        if relevance is None or x is None or weight is None:
            raise BackprobeError(
                f"the epsilon rule at {node.label} needs the layer's input and weight, and only "
                f"{', '.join(saved) or 'nothing'} is kept: it is for AddmmBackward0 (torch.nn.Linear) whose input and "
                "weight both require grad"
            )
        z = x @ weight
        if leaves[0] is not None:
            z = z + leaves[0]
        z = z + self.eps * torch.where(z >= 0, 1.0, -1.0)
        out = call(relevance / z)
        return (None, None if out[1] is None else x * out[1], None)


class noise:
    """Gaussian noise added to a node's outgoing gradients.

    :param std: standard deviation, relative to the root mean square of the gradient.
    :param generator: source of the random numbers; without it, the replay's own copy of the random state.
    """

    def __init__(self, std: float, generator: torch.Generator | None = None) -> None:
        self.std, self.generator = std, generator

    def __call__(self, node: NodeInfo, grads: Grads, call: NodeCall) -> Grads:
        """Apply the rule: run the node on `grads`, and return its outgoing gradients with noise added."""
        return tuple(None if g is None else g + self._draw(g) for g in call(*grads))

    def _draw(self, grad: torch.Tensor) -> torch.Tensor:
        """Draw noise for `grad`: a tensor of the same shape, dtype and device."""
        size = self.std * grad.detach().abs().square().mean().sqrt()
        return size * torch.randn(grad.shape, dtype=grad.dtype, device=grad.device, generator=self.generator)
