"""Several tensors in a tuple, a list or a mapping: flat with names for the work, and back in the same structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...basics.errors import BackprobeError, UnknownName
from ...basics.select import near, quoted
from ...torch_internals.structure import leaves, mapped

#: A tensor, or tensors in tuples, lists and mappings, to any depth.
Tree = Any


def by_name(y: Tree, x: Tree, name: str | None) -> tuple[Tree, Tree]:
    """Return y and x; if `name` is given, `y` is a mapping of tensors, and `x` and `name` are the names of y and x.

    Raises:
        BackprobeError: if `name` is given and the first argument is no mapping, or has no such name.
    """
    if name is None:
        return y, x
    if not isinstance(y, Mapping) or not isinstance(x, str):
        raise BackprobeError(
            f"the third argument is the name of x: give a mapping of tensors and two names, as in (acts, 'head', "
            f"'embeddings'), not a {type(y).__name__}, a {type(x).__name__} and {name!r}"
        )
    for one in (x, name):
        if one not in y:
            raise UnknownName(f"no tensor {one!r}; names are like {quoted(near(one, y))}")
    return y[x], y[name]


class Named:
    """The tensors of a structure in order, with names as a person would write them (``x['block.2'][0]``)."""

    def __init__(self, tree: Tree, role: str) -> None:
        """Collect the tensors of `tree`.
        :param role: the name of the argument, with which the names begin.
        :raises BackprobeError: it holds something other than tensors, or no tensor.
        """
        self.role = role
        self._tree = tree
        # Shortcut for a single tensor, the usual case: the generic walk is half of the overhead over torch.
        found = [(role, tree)] if isinstance(tree, torch.Tensor) else list(leaves(tree, role))
        for name, one in found:
            if not isinstance(one, torch.Tensor):
                raise BackprobeError(
                    f"{name} is a {type(one).__name__}: give a tensor, or a tuple, list or mapping of tensors"
                )
        self.names = [name for name, _ in found]
        self.tensors: list[torch.Tensor] = [tensor for _, tensor in found]
        if not found:
            raise BackprobeError(f"{role} holds no tensor: give a tensor, or a tuple, list or mapping of tensors")

    def items(self) -> list[tuple[str, torch.Tensor]]:
        """Return (name, tensor) pairs."""
        return list(zip(self.names, self.tensors, strict=True))

    def rebuild(self, values: Sequence[object]) -> Tree:
        """Return `values`, one for each tensor, in the original structure. A mapping becomes a dict."""
        if isinstance(self._tree, torch.Tensor):
            return values[0]
        given = iter(values)
        return mapped(self._tree, lambda tensor: next(given))

    def match(self, tree: Tree, role: str, of: str) -> list[torch.Tensor]:
        """Return the tensors of `tree` on the right device and dtype, checked against this structure.

        Raises:
            BackprobeError: if the number of tensors, a shape, or the kind of a dtype differs.
        """
        given = Named(tree, role)
        if len(given.tensors) != len(self.tensors):
            raise BackprobeError(
                f"{role} has {len(given.tensors)} tensors where {of} has {len(self.tensors)}: give one for each of "
                f"{', '.join(self.names)}"
            )
        found = []
        for name, value, mine, tensor in zip(given.names, given.tensors, self.names, self.tensors, strict=True):
            if value.shape != tensor.shape:
                raise BackprobeError(
                    f"{name} has shape {list(value.shape)} where {mine} has {list(tensor.shape)}: they must be the same"
                )
            if value.is_complex() and not tensor.is_complex():
                raise BackprobeError(f"{name} is {value.dtype} where {mine} is {tensor.dtype}: give a real tensor")
            if value.requires_grad:
                value = value.detach()
            if value.dtype != tensor.dtype or value.device != tensor.device:
                value = value.to(device=tensor.device, dtype=tensor.dtype)
            found.append(value)
        return found


def count(tensors: Sequence[torch.Tensor]) -> int:
    """Elements in all."""
    return sum(int(tensor.numel()) for tensor in tensors)
