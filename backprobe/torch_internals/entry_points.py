"""Torch's public functions that run a backward, and the roots and arguments of a call of one."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence, Set, ValuesView
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from ..graphs.plan import needed_for
from ..records import Root
from . import backward_by_name, modes
from .autograd_engine import gradient_edge
from .local import is_partial, local
from .measure import bad_values, dtype_name, shape_of
from .walk import LiveGraph


@dataclass(frozen=True)
class EntryPoint:
    """A torch function that runs a backward.

    :ivar roots: the name of its parameter for the roots.
    """

    function: Callable[..., object]
    kind: str
    roots: str
    signature: inspect.Signature

    def bind(self, args: Any, kwargs: Any) -> dict[str, object] | None:
        """Return the arguments by name; ``None`` for a wrong call, which torch reports itself."""
        try:
            return dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return None

    def begins_at(self, args: object, kwargs: object) -> list[torch.Tensor | GradientEdge]:
        """Return the tensors and gradient edges that a call starts from.

        Empty for a wrong call, which torch reports itself.
        """
        given = as_list((self.bind(args, kwargs) or {}).get(self.roots))
        return [root for root in given if isinstance(root, (torch.Tensor, GradientEdge))]


def entry_points() -> list[EntryPoint]:
    """Return the entry points of the installed torch."""
    return [
        EntryPoint(function, kind, roots, inspect.signature(function))
        for function, kind, roots in (
            (torch.Tensor.backward, "Tensor.backward", "self"),
            (backward_by_name.seen, "autograd.backward", "tensors"),
            (torch.autograd.grad, "autograd.grad", "outputs"),
        )
    ]


#: All entry points by the name of the call, and by the function.
BY_KIND = {entry.kind: entry for entry in entry_points()}
BY_FUNCTION = {entry.function: entry for entry in BY_KIND.values()}


def needed_nodes(kind: str, arguments: dict[str, object], graph: LiveGraph) -> frozenset[int] | None:
    """Return the nodes that run for the ``inputs`` of the call.

    ``None`` if it has no ``inputs``, so that all nodes run.
    """
    inputs = arguments.get("inputs")
    if inputs is None:
        return None
    number = {n: i for i, n in enumerate(graph.nodes)}
    wanted = [number[n] for n in (node_of(i) for i in as_list(inputs)) if n in number]
    return frozenset(needed_for(graph.plan, wanted, kind != "autograd.grad"))


def node_of(root: Any) -> torch.autograd.graph.Node | None:
    """Return the node that a gradient of `root` enters first: its ``grad_fn``, or the accumulator of a leaf.

    ``None`` if there is none, or if `root` is not a tensor.
    """
    try:
        if isinstance(root, GradientEdge):
            return root.node
        if root.grad_fn is not None:
            return root.grad_fn
        if root.requires_grad:
            return gradient_edge(root).node
    except (AttributeError, RuntimeError, TypeError):
        pass
    return None


def number_of_root(tensor: object) -> torch.Tensor | None:
    """Return the scalar that ``root_record`` needs of a root on an accelerator, without reading it.

    It is a tensor of no dimension: the root's value, or, for a root with several elements, a number that is finite only
    if all elements are.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.is_cpu or modes.is_unsafe_to_read(tensor, ignores_our_modes=True):
        return None
    # A subclass may have no values, and raise any exception when they are read.
    with torch.no_grad(), modes.hide_from_dispatch_modes(), contextlib.suppress(Exception):
        here = local(tensor)
        if here is not None and here.layout is torch.strided and here.is_floating_point() and here.numel():
            here = here.detach()
            return here.reshape(()) if here.numel() == 1 else torch.linalg.vector_norm(here, torch.inf)
    return None


def root_record(tensor: object, node: int | None, number: float | None = None) -> Root:
    """Return the record of a root.

    :param number: the value of ``number_of_root``, if it was read; otherwise the tensor's values are read, which waits
        for an accelerator, so call it after the backward.
    """
    if not isinstance(tensor, torch.Tensor):
        return Root(node, (), "", None, None)
    value, suspect = None, number is None or number - number != 0.0
    if not modes.is_unsafe_to_read(tensor, ignores_our_modes=True):
        # A subclass may have no values, and raise any exception when they are read.
        with torch.no_grad(), modes.hide_from_dispatch_modes(), contextlib.suppress(Exception):
            if tensor.numel() == 1 and not tensor.is_complex() and tensor.layout is torch.strided:
                here = local(tensor)
                if here is not None and here.numel() == 1:  # a sharded one has its value on one rank
                    value = float(here.detach()) if number is None else number
                    suspect = value - value != 0.0
                    value = None if is_partial(tensor) and not suspect else value
            return Root(
                node, shape_of(tensor), dtype_name(tensor.dtype), value, bad_values(tensor) if suspect else None
            )
    return Root(node, shape_of(tensor), dtype_name(tensor.dtype), None, None)


def describe(value: object) -> str:
    """Return a short description of an argument of a backward call."""
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(shape_of(value))}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(describe(v) for v in value[:8]) + (", ..." if len(value) > 8 else "") + "]"
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__


def as_list(value: Any) -> Sequence[Any]:
    """Return an argument that may be single or a sequence as a list.

    An iterator is not consumed: torch has to read it.
    """
    if value is None:
        return []
    several = isinstance(value, (Sequence, Set, ValuesView)) and not isinstance(value, GradientEdge)
    return list(value) if several else [value]
