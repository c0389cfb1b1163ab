"""VJP and JVP between tensors of a graph that already exists."""

from __future__ import annotations

from typing import Literal

import torch

from ...basics.errors import BackprobeError
from ...basics.text import without_controls
from .guard import Guard
from .named import Named, Tree, count
from .products import Products, Tensors


def vjp(y: Tree, x: Tree, v: Tree = None, *, unconnected: Literal["error", "zero"] = "error") -> Tree:
    """Return ``v^T J`` for the Jacobian J of `y` with respect to `x`, by one backward pass over the existing graph.

    It can be called again and again: the graph stays, ``.grad`` of every tensor and the random state stay as they are.
    Hooks on tensors on the way run, as in ``torch.autograd.grad``; a tensor's hook may change the gradient.

    Args:
        y: a tensor that is attached to a graph, or tensors in tuples, lists or mappings.
        x: what to differentiate by: tensors on the way to `y`, leaves or not, in any such structure.
        v: the cotangent, of the structure and shapes of `y`. Default: ones (the gradient of the sum of y).
        unconnected: ``"zero"`` gives zeros for those of `x` that `y` does not depend on; by default it is an error.

    Returns:
        Gradients in the structure of `x`, each with its tensor's shape. For complex tensors torch's convention holds:
        the result is the adjoint for the real inner product, ``Re(conj(a) b)``.

    Raises:
        BackprobeError: if a tensor is an integer one or not attached, `y` does not depend on `x`, the graph is freed,
            a tensor that it needs was changed in place, or `v` does not fit.
    """
    products = _products(y, x, unconnected)
    cotangents = products.y.match(v, "v", "y") if v is not None else [torch.ones_like(t) for t in products.y.tensors]
    with Guard(products.y.tensors, products.x.tensors)():
        return products.x.rebuild(products.vjp.single(cotangents))


def jvp(y: Tree, x: Tree, u: Tree = None, *, unconnected: Literal["error", "zero"] = "error") -> Tree:
    """Return ``J u`` for the Jacobian J of `y` with respect to `x`, on the existing graph.

    The VJP is differentiated by its cotangent (twice backward), so the whole way needs a second derivative. For many
    products take :func:`linearize`, which builds the transposed graph once.

    Args:
        y, x, unconnected: as for :func:`vjp`.
        u: the direction, of the structure and shapes of `x`. Default: ones.

    Returns:
        Tensors in the structure of `y`.

    Raises:
        BackprobeError: as :func:`vjp`, and if the backward pass cannot be differentiated (fused attention, a custom
            Function) or is not linear (a hook changes gradients).
    """
    products = _products(y, x, unconnected)
    direction = products.x.match(u, "u", "x") if u is not None else [torch.ones_like(t) for t in products.x.tensors]
    with Guard(products.y.tensors, products.x.tensors)():
        return products.y.rebuild(_detached(products.jvp.single(direction)))


class Linearization:
    """Products with the Jacobian of `y` with respect to `x`, as many as wanted. Made by :func:`linearize`."""

    def __init__(self, products: Products) -> None:
        """Take the products, and protect the user's state while they are computed."""
        self._products = products
        self._guard = Guard(products.y.tensors, products.x.tensors)
        #: Number of elements of y and of x: the shape of J.
        self.shape = (count(products.y.tensors), count(products.x.tensors))

    def vjp(self, v: Tree = None) -> Tree:
        """Return ``v^T J`` in the structure of x. Default for `v`: ones."""
        y = self._products.y
        given = y.match(v, "v", "y") if v is not None else [torch.ones_like(t) for t in y.tensors]
        with self._guard():
            return self._products.x.rebuild(self._products.vjp.single(given))

    def jvp(self, u: Tree = None) -> Tree:
        """Return ``J u`` in the structure of y. Default for `u`: ones."""
        x = self._products.x
        given = x.match(u, "u", "x") if u is not None else [torch.ones_like(t) for t in x.tensors]
        with self._guard():
            return self._products.y.rebuild(_detached(self._products.jvp.single(given)))

    def vjps(self, v: Tree) -> Tree:
        """Return a batch of VJPs: every tensor of `v`, and of the result, has one more dimension in front."""
        given = _stacked(self._products.y, v, "v")
        with self._guard():
            return self._products.x.rebuild(self._products.vjp.batch(given))

    def jvps(self, u: Tree) -> Tree:
        """Return a batch of JVPs: every tensor of `u`, and of the result, has one more dimension in front."""
        given = _stacked(self._products.x, u, "u")
        with self._guard():
            return self._products.y.rebuild(_detached(self._products.jvp.batch(given)))

    def __repr__(self) -> str:
        """Return names, shape of J and the number of products so far as text."""
        p = self._products
        ends = f"{', '.join(p.y.names[:3])} by {', '.join(p.x.names[:3])}"
        size = f"{self.shape[0]:,} x {self.shape[1]:,}"
        return without_controls(f"Linearization({ends}: {size}, {p.vjp.count} VJPs, {p.jvp.count} JVPs)")


def linearize(y: Tree, x: Tree, *, unconnected: Literal["error", "zero"] = "error") -> Linearization:
    """Return an object with ``vjp``, ``jvp``, ``vjps`` and ``jvps`` (batched) of `y` with respect to `x`.

    It keeps the graph, and from the first JVP on the transposed graph too (about the memory of a backward pass with
    ``create_graph``), until it is let go of. Arguments and errors are those of :func:`vjp` and :func:`jvp`.
    """
    return Linearization(_products(y, x, unconnected))


def _products(y: Tree, x: Tree, unconnected: str) -> Products:
    """Return the products with the Jacobian of `y` by `x`.
    :raises BackprobeError: `unconnected` is neither ``"error"`` nor ``"zero"``, or a tensor has no derivative.
    """
    if unconnected not in ("error", "zero"):
        raise BackprobeError(f"unconnected={unconnected!r}: give 'error' or 'zero'")
    return Products(Named(y, "y"), Named(x, "x"), unconnected == "zero")


def _stacked(named: Named, tree: Tree, role: str) -> Tensors:
    """Return the tensors of `tree`, each with a batch dimension in front, on the device and in the dtype of `named`.
    :param role: the name of the argument, for error messages.
    :raises BackprobeError: number or shapes do not match.
    """
    given = Named(tree, role)
    found = []
    if len(given.tensors) != len(named.tensors):
        raise BackprobeError(
            f"{role} has {len(given.tensors)} tensors where {named.role} has {len(named.tensors)}: give one for each "
            f"of {', '.join(named.names)}"
        )
    size = given.tensors[0].shape[:1]
    for (name, value), (mine, tensor) in zip(given.items(), named.items(), strict=True):
        if value.dim() == 0 or value.shape[0] == 0 or value.shape != size + tensor.shape:
            raise BackprobeError(
                f"{name} has shape {list(value.shape)}: for {mine} it must be [number of products, "
                f"{', '.join(map(str, tensor.shape))}]"
            )
        found.append(value.detach().to(device=tensor.device, dtype=tensor.dtype))
    return found


def _detached(tensors: Tensors) -> Tensors:
    """Return the tensors without their graphs."""
    return [tensor.detach() for tensor in tensors]
