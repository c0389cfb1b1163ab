"""Backward calls with ``create_graph``: whether there were any, and gradients that keep a graph."""

from __future__ import annotations

from typing import Any

from ...records import GradientCycle
from ...torchside import private
from ..backward.calls import Running
from ..forward.leaves import Leaf
from ..forward.naming import Naming


class CreatedGraphs:
    """Calls with ``create_graph``, and where ``backward`` was called with it."""

    def __init__(self, names: Naming) -> None:
        self._names = names
        self.any = False
        #: Where ``backward(create_graph=True)`` was called -> the leaves that it reached.
        self._reached: dict[Any, list[Leaf]] = {}

    def note(self, running: Running) -> None:
        if not running.creates_graph:
            return
        self.any = True
        if running.kind != "autograd.grad" and len(self._reached) < 100:
            self._reached.setdefault(running.spot, list(running.live.named.values()))

    def records(self) -> tuple[GradientCycle, ...]:
        """Calls whose gradients still have a graph: a cycle, which keeps both."""
        found = []
        with private.unseen():
            for spot, leaves in self._reached.items():
                alive = [
                    leaf for leaf in leaves if (p := leaf.ref()) is not None and p.grad is not None and p.grad.grad_fn
                ]
                if alive:
                    names = tuple(self._names.leaves.name(leaf) for leaf in alive)
                    found.append(GradientCycle(self._names.frames.site(spot), names))
        return tuple(found)
