"""What a backward call measured, as rows: the signature that its numbers go with, and what the next will measure."""

from __future__ import annotations

from typing import Any

from ...graphs.plan import Plan
from ...packed import Signature
from ...torchside.measure import SMALL, dtype_name, sizes

#: The order of nodes; (node, number, slot, shape, dtype) of what went out; the same of what came in.
Rows = tuple[list[int], list[Any], list[Any]]


class Program:
    """What the last backward call over a layout measured, so that the next can measure the same without bookkeeping.

    Made from the raw lists of a ``Watch``: rows of (node, number, slot, shape, dtype).
    """

    def __init__(self, order: list[int], out: list[Any], came: list[Any], plan: Plan) -> None:
        self.order, self.out, self.came = order, out, came
        self.slots = 1 + max((m[2] for m in (*out, *came)), default=-1)
        rows: dict[int, list[Any]] = {}
        for m in out:
            rows.setdefault(m[0], []).append(m)
        #: Node -> ((number, slot, shape, dtype), ...) of what goes out.
        self.rows = {i: tuple(m[1:] for m in ms) for i, ms in rows.items()}
        self.came_slots = {(m[0], m[1]): m for m in came}
        #: Nodes whose results are small and made new: they may be held until a batch is full:
        #: Note [No gradient is held].
        self.held = {
            i for i, ms in rows.items() if i not in plan.to_leaf and all(m[2] >= 0 and _small(m[3]) for m in ms)
        }


def _small(shape: Any) -> bool:
    return all(type(n) is int for n in shape) and shape.numel() <= SMALL


def signature_of(rows: Rows) -> Signature:
    """The record of `rows`."""
    order, out, came = rows
    return Signature(
        tuple(int(i) for i in order),
        tuple((int(i), k, s, sizes(shape), dtype_name(dtype)) for i, k, s, shape, dtype in out),
        tuple((int(i), k, s, sizes(shape), dtype_name(dtype)) for i, k, s, shape, dtype in came),
    )
