"""Facts about tensors of the running step, and names of the operations through which terms of a loss go."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from ...ops import canonical
from ...torch_internals import private

_Known = TypeVar("_Known")
_ref = private.tensor_ref


def canonical_names(words: str) -> frozenset[str]:
    """Return the canonical names of operations, given in one string with spaces between them."""
    return frozenset(map(canonical, words.split()))


#: Operations that rearrange, select or join elements.
RESHAPES = canonical_names("view reshape squeeze unsqueeze flatten ravel getitem select t transpose permute clone to")
JOINS = canonical_names("stack cat concat hstack vstack")
#: Operations through which a term goes on its way to the root: it is scaled, added to others, summed or averaged.
LOSS_SUMS = canonical_names("neg mul div add sub rsub sum mean nansum nanmean") | RESHAPES | JOINS
#: Maximum number of tensors that one tracker follows in a step.
MAX_FOLLOWED = 20_000


class FollowedTensors(Generic[_Known]):
    """Facts of tensors, which are not kept alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], _Known]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def clear(self) -> None:
        self._known.clear()

    def get(self, tensor: Any) -> _Known | None:
        known = self._known.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def put(self, tensor: Any, known: _Known) -> None:
        if len(self._known) < MAX_FOLLOWED:
            self._known[id(tensor)] = _ref(tensor), known

    def of(self, tensors: Iterable[Any]) -> list[_Known]:
        """Return the facts of those tensors that have any."""
        return [known for t in tensors if (known := self.get(t)) is not None] if self._known else []


def nearest_leaves(tensor: Any, most: int, nodes_searched: int) -> dict[int, weakref.ref[Any]]:
    """Return references to some leaves of the graph of `tensor`, those with the shortest way to them, by id."""
    if tensor.grad_fn is None:
        return {id(tensor): _ref(tensor)}
    leaves: dict[int, weakref.ref[Any]] = {}
    nodes = [tensor.grad_fn]
    seen = set(nodes)
    for node in nodes:  # grows as we go
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves[id(variable)] = _ref(variable)
            if len(leaves) >= most:
                break
        for child, _ in node.next_functions if len(nodes) < nodes_searched else ():
            if child is not None and child not in seen:
                seen.add(child)
                nodes.append(child)
    return leaves
