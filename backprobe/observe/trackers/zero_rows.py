"""Detects outputs of linear and convolution layers whose rows of the weight have a gradient of zero to the end."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ... import thresholds
from ...records import UnlearnedRows
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.measure import is_float, nonzero_rows
from ..backward.active_backward import ActiveBackward
from ..backward.pending_call_record import PendingCallRecord
from ..forward.leaves import LeafTensor
from ..schedule.observed_steps import OBSERVATION_INTERVAL, is_observed_step
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of weights that are followed.
MAX_WEIGHTS = 500
#: Maximum number of elements of a weight that are read.
MAX_ELEMENTS = 1 << 24
#: Maximum number of rows that are listed.
MAX_LISTED = 100
#: The layers whose weight has a row for each output.
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass
class _Weight:
    """A weight that is read.

    :ivar zeros: for each row, at how many successive looks its gradient was zero; ``learned``: it was not once.
    :ivar alive: the rows that had a gradient in this window; ``None`` if all had one. ``since``: for each row, the
        first step of those looks.
    """

    ref: weakref.ref[torch.Tensor]
    leaf: LeafTensor
    owner: str
    zeros: torch.Tensor
    learned: torch.Tensor
    since: torch.Tensor
    alive: torch.Tensor | None
    last: int = -1
    spot: CodeLocation | None = None


class ZeroRowTracker(Tracker):
    """Tracker of rows of weights whose gradient is zero.

    It reads gradients in recorded steps: those that the ledger accounts for, and others at growing intervals.
    """

    def __init__(self, context: TrackerContext) -> None:
        """Start without weights."""
        self._context = context
        self._weights: dict[int, _Weight] = {}
        #: Leaves that are no weights of such layers.
        self._ignored_leaves: set[int] = set()
        #: The first step of the next window, and the step of the last look.
        self._window, self._looked = 0, -1

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Look at the gradients of all weights after an outermost recorded call that went well, if a look is due."""
        step = self._context.steps.index
        if running.inside is not None or running.kind == "autograd.grad" or not self._is_due(step):
            return
        if recorded.raised is not None or recorded.has_trouble:
            return
        with private.measuring():
            if step >= self._window:
                self._window = step + max(thresholds.ZERO_ROW_MIN_WINDOW, int(thresholds.ZERO_ROW_WINDOW_SHARE * step))
                for one in self._weights.values():
                    one.alive = torch.zeros(len(one.zeros), dtype=torch.bool)
            for _, leaf in running.graph.leaves:
                if id(leaf) in self._ignored_leaves or leaf.grad is None:
                    continue
                weight = self._weight(leaf)
                if weight is not None and weight.alive is not None:
                    self._check_rows(weight, leaf, step, running.spot)

    def _is_due(self, step: int) -> bool:
        """Return whether to look at the gradients of a recorded step: the intervals between looks grow."""
        if not is_observed_step(step) and step < self._looked + step // OBSERVATION_INTERVAL:
            return False
        self._looked = step
        return True

    def _weight(self, leaf: torch.Tensor) -> _Weight | None:
        """Return the state of a leaf that is the weight of such a layer, made if it is new; ``None`` for other
        leaves.
        """
        known = self._weights.get(id(leaf))
        if known is not None and known.ref() is leaf:
            return known
        named = self._context.names.leaves.known(leaf)
        owner = named.owner() if named is not None and named.owner is not None else None
        if named is None or not _is_weight(owner, leaf) or len(self._weights) >= MAX_WEIGHTS:
            if len(self._ignored_leaves) < 100 * MAX_WEIGHTS:
                self._ignored_leaves.add(id(leaf))
            return None
        nothing = torch.zeros(len(leaf), dtype=torch.int64)
        dead = torch.zeros(len(leaf), dtype=torch.bool)
        made = _Weight(
            private.tensor_ref(leaf), named, type(owner).__name__, nothing, dead, nothing.clone(), dead.clone()
        )
        self._weights[id(leaf)] = made
        return made

    def _check_rows(self, one: _Weight, leaf: torch.Tensor, step: int, spot: CodeLocation | None) -> None:
        """Count, for each row of a weight, at how many looks in a row its gradient was zero."""
        grad = leaf.grad
        if not (grad.is_cpu and private.is_readable(grad)) or len(grad) != len(one.zeros) or leaf._backward_hooks:
            return
        alive = nonzero_rows(grad)
        if one.alive is None or not bool(alive.any()):
            return  # a gradient that is zero as a whole is reported by itself
        one.since.masked_fill_(one.zeros == 0, step)
        one.zeros.add_(step != one.last).masked_fill_(alive, 0)
        one.learned |= alive
        one.last, one.spot = step, spot
        one.alive |= alive
        if bool(one.alive.all()):
            one.alive = None

    def records(self) -> Iterator[UnlearnedRows]:
        """Yield a record of each weight some of whose rows had no gradient in enough of the last looks."""
        with private.measuring():
            for one in self._weights.values():
                dead = one.zeros >= thresholds.ZERO_ROW_MIN_LOOKS
                if not bool(dead.any()) or bool(dead.all()):
                    continue
                rows = tuple(map(int, dead.nonzero().flatten().tolist()))
                yield UnlearnedRows(
                    self._context.names.leaves.name(one.leaf),
                    one.owner,
                    rows[:MAX_LISTED],
                    len(rows),
                    len(dead),
                    int((one.learned & dead).sum()),
                    int(one.since[dead].median()),
                    one.last,
                    int(one.zeros[dead].min()),
                    self._context.frames.site(one.spot),
                )


def _is_weight(owner: nn.Module | None, leaf: torch.Tensor) -> bool:
    """Return whether a leaf is the weight of a layer with a row for each output, and can be read here."""
    if not isinstance(owner, LAYERS) or id(owner.weight) != id(leaf) or not private.is_readable(leaf):
        return False
    readable = leaf.is_cpu and is_float(leaf) and leaf.dim() > 1
    return bool(readable and len(leaf) >= thresholds.ZERO_ROW_MIN_ROWS and 0 < leaf.numel() <= MAX_ELEMENTS)
