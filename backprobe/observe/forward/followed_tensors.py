"""Facts about tensors of the running step, and names of the operations through which terms of a loss go."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...ops import canonical_names, names_of
from ...torch_internals import private

if TYPE_CHECKING:
    import torch

_Known = TypeVar("_Known")
_ref = private.tensor_ref


#: Operations that give a tensor another shape, move its dimensions, or give it another dtype.
SHAPES = names_of(lambda row: row.changes_shape) - canonical_names("unflatten atleast_1d")
TRANSPOSES, CASTS = names_of(lambda row: row.moves_dimensions), names_of(lambda row: row.casts)
#: Operations that rearrange or select elements; and those that join several tensors.
RESHAPES = SHAPES | TRANSPOSES | CASTS | canonical_names("getitem select clone")
JOINS = names_of(lambda row: row.joins_inputs)
#: Operations that add tensors; operations that subtract or scale a tensor.
ADDITIONS = names_of(lambda row: row.is_elementwise_sum)
DIFFERENCES, SCALINGS = canonical_names("sub rsub"), names_of(lambda row: row.scales_input)
#: Operations that add up or average the elements of a tensor, and that square them.
TOTALS, SQUARES = names_of(lambda row: row.is_total), canonical_names("pow square abs")
#: Operations through which a term goes on its way to the root: it is scaled, added to others, summed or averaged.
LOSS_SUMS = SCALINGS | ADDITIONS | TOTALS | RESHAPES | JOINS
#: Maximum number of tensors that one tracker follows in a step.
MAX_FOLLOWED = 20_000


class FollowedTensors(Generic[_Known]):
    """Facts of tensors, which are not kept alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], _Known]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def clear(self) -> None:
        """Forget all tensors."""
        self._known.clear()

    def get(self, tensor: object) -> _Known | None:
        """Return what is known of a tensor; ``None`` if nothing is."""
        known = self._known.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def put(self, tensor: torch.Tensor, known: _Known) -> None:
        """Set what is known of a tensor, unless ``MAX_FOLLOWED`` are followed."""
        if len(self._known) < MAX_FOLLOWED:
            self._known[id(tensor)] = _ref(tensor), known

    def keep_living(self, most: int) -> None:
        """Forget tensors that are gone; all of them if more than `most` are left."""
        self._known = {number: one for number, one in self._known.items() if one[0]() is not None}
        if len(self._known) > most:
            self._known.clear()

    def drop(self, tensor: torch.Tensor) -> None:
        """Forget a tensor."""
        self._known.pop(id(tensor), None)

    def items(self) -> Iterator[tuple[Any, _Known]]:
        """Yield the tensors that are still there, and what is known of each."""
        return ((tensor, known) for ref, known in self._known.values() if (tensor := ref()) is not None)

    def of(self, tensors: Iterable[Any]) -> list[_Known]:
        """Return the facts of those tensors that have any."""
        return [known for t in tensors if (known := self.get(t)) is not None] if self._known else []


def nearest_leaves(tensor: torch.Tensor, most: int, nodes_searched: int) -> dict[int, weakref.ref[torch.Tensor]]:
    """Return references to some leaves of the graph of `tensor`, those with the shortest way to them, by id."""
    if tensor.grad_fn is None:
        return {id(tensor): _ref(tensor)}
    leaves: dict[int, weakref.ref[torch.Tensor]] = {}
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
