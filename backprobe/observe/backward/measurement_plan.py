"""The rows that a backward call measured: they define the signature of its norms and what the next call measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...graphs.packed_calls import Signature
from ...graphs.plan import Plan
from ...torch_internals.measure import MAX_BATCHED_ELEMENTS, dtype_name, sizes

if TYPE_CHECKING:
    import torch

#: The order of nodes; (node, number, slot, shape, dtype) of outgoing gradients; the same of incoming ones.
Rows = tuple[list[int], list[Any], list[Any]]


class BatchWindow:
    """Consecutive nodes whose small gradients are measured together.

    :ivar order: all nodes that ran, including those whose gradients are measured at once.
    :ivar groups: by shape and dtype, the slots of gradients and their positions: (index of the held node, number).
    :ivar absent: positions at which no gradient comes.
    """

    __slots__ = ("absent", "groups", "order")

    def __init__(self, order: list[int], measurement_plan: MeasurementPlan) -> None:
        """Group the gradients of the held nodes in `order` by shape and dtype."""
        self.order = order
        groups: dict[Any, tuple[list[int], list[tuple[int, int]]]] = {}
        self.absent: list[tuple[int, int]] = []
        for at, i in enumerate(i for i in order if i in measurement_plan.held_nodes):
            row = measurement_plan.rows[i]
            for k, slot, shape, dtype in row:
                slots, places = groups.setdefault((shape, dtype), ([], []))
                slots.append(slot)
                places.append((at, k))
            there = {r[0] for r in row}
            self.absent += [(at, k) for k in range(measurement_plan.counts[i]) if k not in there]
        self.groups = [(*key, *value) for key, value in groups.items()]


class MeasurementPlan:
    """The measurements of the last backward call over a layout: the next call repeats them without bookkeeping.

    It is made from the raw lists of a ``NodeHookSet``: rows of (node, number, slot, shape, dtype).
    """

    def __init__(self, order: list[int], out: list[Any], incoming: list[Any], plan: Plan) -> None:
        """Make a plan from the rows that a call measured, in the order in which the nodes ran."""
        self.order, self.out, self.incoming, self.counts = order, out, incoming, plan.counts
        #: The norms that the last call with this plan measured.
        self.last_norms: Sequence[float] = ()
        self.slot_count = 1 + max((m[2] for m in (*out, *incoming)), default=-1)
        rows: dict[int, list[Any]] = {}
        for m in out:
            rows.setdefault(m[0], []).append(m)
        #: Node -> ((number, slot, shape, dtype), ...) of what goes out.
        self.rows = {i: tuple(m[1:] for m in ms) for i, ms in rows.items()}
        self.incoming_slots = {(m[0], m[1]): m for m in incoming}
        #: Nodes whose results are small and new tensors: they may be held until a batch is full:
        #: Note [No gradient is held].
        self.held_nodes = {
            i for i, ms in rows.items() if i not in plan.to_leaf and all(m[2] >= 0 and _small(m[3]) for m in ms)
        }
        #: The windows that were measured together, in order.
        self.windows: list[BatchWindow] = []

    def window(self, number: int, order: list[int]) -> BatchWindow:
        """Return batch window number `number` of a backward call, in which the nodes `order` ran since the previous
        window. Nodes mostly run in the same order in each call, so windows of earlier calls are kept and used again.
        """
        windows = self.windows
        if number < len(windows) and windows[number].order == order:
            return windows[number]
        del windows[number:]
        made = BatchWindow(order, self)
        if number == len(windows):
            windows.append(made)
        return made


def _small(shape: torch.Size) -> bool:
    """Return whether a gradient of this shape is small enough to be measured in a batch."""
    return all(type(n) is int for n in shape) and shape.numel() <= MAX_BATCHED_ELEMENTS


def signature_of(rows: Rows) -> Signature:
    """Return the record of `rows`."""
    order, out, incoming = rows
    return Signature(
        tuple(int(i) for i in order),
        tuple((int(i), k, s, sizes(shape), dtype_name(dtype)) for i, k, s, shape, dtype in out),
        tuple((int(i), k, s, sizes(shape), dtype_name(dtype)) for i, k, s, shape, dtype in incoming),
    )
