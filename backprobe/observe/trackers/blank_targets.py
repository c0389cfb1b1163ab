"""Detects targets of ``ctc_loss`` that are its blank: no output spells them."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

import torch

from ...records import BlankTargets
from ...torch_internals import private
from ...torch_internals.saved_by_nodes import ctc_targets
from ..backward.active_backward import ActiveBackward
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: The most backward calls whose targets are read, and the most targets of one.
MAX_CALLS, MAX_TARGETS = 64, 100_000
_NODE = "CtcLossBackward0"


class BlankTargetTracker(Tracker):
    """Tracker that reads the targets of ``ctc_loss`` in recorded backward calls on the CPU."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._calls, self._step = 0, 0
        self._blank, self._count, self._targets = -1, 0, 0

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Read the targets of each ``ctc_loss`` in a graph, in the first calls."""
        graph = running.graph
        if self._calls >= MAX_CALLS or _NODE not in graph.plan.distinct:
            return
        self._calls += 1
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            for i, name in enumerate(graph.plan.names):
                if name == _NODE:
                    self._read(graph.nodes[i])

    def _read(self, node: object) -> None:
        """Count how many targets of a ``ctc_loss`` node are its blank; the padding of rows does not count."""
        targets, lengths, blank = ctc_targets(node)
        if targets is None or not targets.is_cpu or private.is_unsafe_to_read(targets) or targets.numel() > MAX_TARGETS:
            return
        if targets.dim() == 2 and len(lengths) == targets.shape[0]:  # what comes after its length pads a row
            targets = torch.cat([row[:length] for row, length in zip(targets, lengths, strict=True)])
        elif targets.dim() != 1 or targets.numel() != sum(lengths):
            return
        count = int((targets == blank).sum())
        if count and not self._count:
            self._step, self._blank = self._context.steps.index, blank
        self._count, self._targets = self._count + count, self._targets + targets.numel()

    def records(self) -> Iterator[BlankTargets]:
        """Yield a record if any target was the blank."""
        if self._count:
            yield BlankTargets(self._blank, self._count, self._targets, self._calls, self._step)
