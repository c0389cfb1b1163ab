"""Detects gradients that keep a graph alive, left by backward calls with ``create_graph``."""

from __future__ import annotations

from types import FrameType
from typing import Any

from ...records import GradientCycle
from ...torch_internals import private
from ..backward.active_backward import ActiveBackward
from ..forward.leaves import LeafTensor
from ..tracker import Tracker
from ..tracker_context import TrackerContext


class CreatedGraphs(Tracker):
    """Tracker of the lines that call ``backward(create_graph=True)``."""

    def __init__(self, context: TrackerContext) -> None:
        self._names = context.names
        #: By line that called ``backward(create_graph=True)``: the leaves that the call reached.
        self._reached: dict[Any, list[LeafTensor]] = {}

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Note the leaves that a ``backward(create_graph=True)`` reaches, for the first call of each line."""
        if not running.creates_graph:
            return
        if running.kind != "autograd.grad" and len(self._reached) < 100:
            self._reached.setdefault(running.spot, list(running.live.named.values()))

    def records(self) -> tuple[GradientCycle, ...]:
        """Return calls whose gradients still have a graph: a reference cycle that keeps both alive."""
        found = []
        with private.disable_function_modes():
            for spot, leaves in self._reached.items():
                alive = [
                    leaf for leaf in leaves if (p := leaf.ref()) is not None and p.grad is not None and p.grad.grad_fn
                ]
                if alive:
                    names = tuple(self._names.leaves.name(leaf) for leaf in alive)
                    found.append(GradientCycle(self._names.frames.site(spot), names))
        return tuple(found)
