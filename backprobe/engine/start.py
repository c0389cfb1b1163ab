"""Inputs of a replay: the graph, the gradients of its roots, and the requested gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.autograd.graph import GradientEdge

from ..basics.errors import BackprobeError
from ..torch_internals import private
from ..torch_internals.entry_points import as_list
from .backward_graph import BackwardGraph
from .calling import fitted_to
from .provenance import Forward


class Start:
    """The arguments of a backward.

    :ivar roots: (node, output index, gradient), as the engine begins with them.
    :ivar inputs: the requested gradients: (tensor or edge, node, output index). ``None``: all leaves.
    :raises BackprobeError: there is no graph, or a tensor does not require grad.

    Errors that torch finds in the gradients of the roots are raised as torch raises them.
    """

    def __init__(
        self, tensors: object, grad_tensors: object, inputs: object, create_graph: bool, forward: Forward
    ) -> None:
        """Check the arguments, and build the graph and the gradients of its roots.
        :param tensors: the tensors to start from, as ``torch.autograd.backward`` takes them.
        :param grad_tensors: gradients of these tensors; ``None``: 1 for a scalar.
        :param inputs: tensors or edges whose gradients are requested; ``None``: all leaves.
        :param create_graph: whether the replay builds a graph of its own.
        :param forward: information about the forward, for the graph's names.
        """
        outputs = as_list(tensors)
        if not outputs:
            raise BackprobeError("replay needs a tensor to begin with, such as the loss; none was given")
        edges = [_edge(root, f"tensor {k} to replay from") for k, root in enumerate(outputs)]
        given = as_list(grad_tensors) if grad_tensors is not None else [None] * len(outputs)
        if len(given) != len(outputs):
            raise BackprobeError(f"{len(given)} grad_tensors were given for {len(outputs)} tensors: give one for each")
        kind = "autograd.backward" if inputs is None else "autograd.grad"
        kwargs: dict[str, object] = {"grad_tensors" if inputs is None else "grad_outputs": grad_tensors}
        if inputs is not None:
            kwargs["inputs"] = inputs
        self.create_graph = create_graph
        with private.disable_function_modes():
            self.graph = graph = BackwardGraph(kind, (outputs,), {**kwargs, "create_graph": create_graph}, forward)
            grads = private.root_gradients(outputs, given)
        number = {node: i for i, node in enumerate(graph.nodes)}
        self.roots: list[tuple[int, int, torch.Tensor]] = []
        for k, (edge, grad) in enumerate(zip(edges, grads, strict=True)):
            if grad is not None:
                with torch.set_grad_enabled(create_graph):
                    like = edge.node._input_metadata[edge.output_nr]
                    grad = fitted_to(grad, like, "gradients for the roots have", k)
                self.roots.append((number[edge.node], edge.output_nr, grad))
        self.inputs: list[tuple[torch.Tensor | GradientEdge, int | None, int]] | None = None
        if inputs is not None:
            asked = [(key, _edge(key, f"input {k}")) for k, key in enumerate(as_list(inputs))]
            if not asked:
                raise BackprobeError("inputs is empty: name the tensors whose gradients you want, or leave it out")
            self.inputs = [(key, number.get(edge.node), edge.output_nr) for key, edge in asked]

    @property
    def captured(self) -> frozenset[int]:
        """The numbers of the nodes whose incoming gradients are requested."""
        return frozenset(i for _, i, _ in self.inputs or () if i is not None)

    def edges(self) -> tuple[tuple[GradientEdge, ...], tuple[torch.Tensor, ...], tuple[GradientEdge, ...]]:
        """Return roots, their gradients, and the requested edges, as the engine takes them."""
        nodes = self.graph.nodes
        asked = [GradientEdge(nodes[i], k) for _, i, k in self.inputs or () if i is not None]
        return (
            tuple(GradientEdge(nodes[i], k) for i, k, _ in self.roots),
            tuple(g for *_, g in self.roots),
            tuple(asked),
        )

    def wanted(self, i: int) -> Sequence[int] | None:
        """Return the indices of the edges of node `i` that this call follows; ``None``: all."""
        if self.inputs is None:
            return None
        captured = self.captured
        return [
            k
            for k, edge in enumerate(self.graph.edges(i))
            if edge is not None and (self.graph.runs(edge[0]) or edge[0] in captured)
        ]


def _edge(value: object, what: str) -> GradientEdge:
    """Return the graph edge of a tensor or edge that the user gave.
    :param what: the name of the argument, for the error message.
    :raises BackprobeError: it is no tensor, or has no graph.
    """
    if isinstance(value, GradientEdge):
        return value
    if not isinstance(value, torch.Tensor):
        raise BackprobeError(f"{what} is a {type(value).__name__}; give a tensor")
    if not value.requires_grad:
        raise BackprobeError(
            f"{what} has no graph: it does not require grad. It was made under no_grad, detached, or from tensors that "
            "do not require grad"
        )
    return private.gradient_edge(value)
