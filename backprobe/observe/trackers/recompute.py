"""Checkpointed regions: which modules change their state a second time when they are recomputed."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from ...records import Recomputed
from ...source.frames import Spot
from ...source.roots import Where
from ...torchside import places
from ..events import Tracker
from ..scene import Scene

_CHECKPOINT = frozenset({places.CHECKPOINT, places.CHECKPOINT_SEQUENTIAL})


class Recompute(Tracker):
    """Compares the versions of a module's buffers around its calls during a backward."""

    def __init__(self, scene: Scene) -> None:
        self._modules, self._frames = scene.modules, scene.frames
        #: Module -> line of the checkpoint around its first call.
        self._regions: dict[int, Spot] = {}
        self._before: list[tuple[nn.Module, dict[str, int]]] = []
        self._found: dict[Any, tuple[list[Where], list[tuple[Where, str]]]] = {}

    def stateful_enters(self, module: nn.Module) -> None:
        if self._modules.in_backward:
            self._before.append((module, {n: b._version for n, b in module._buffers.items() if b is not None}))
        elif module.training:
            self._in_forward(module)

    def _in_forward(self, module: nn.Module) -> None:
        """A module with buffers is called in the forward: is it inside a checkpoint?"""
        frame: Any = sys._getframe()
        while frame is not None:
            if frame.f_code in _CHECKPOINT:
                spot = self._frames.spot(frame)
                if spot is not None:
                    self._regions[id(module)] = spot
                return
            frame = frame.f_back

    def stateful_left(self, module: nn.Module, where: Where) -> None:
        if not self._before or self._before[-1][0] is not module:
            return
        before = self._before.pop()[1]
        changed = [n for n, b in module._buffers.items() if b is not None and b._version > before.get(n, b._version)]
        if changed and "num_batches_tracked" in changed:  # the statistics beside it are written without a version
            changed = [n for n, b in module._buffers.items() if b is not None]
        if changed and len(self._found) < 100:
            wheres, names = self._found.setdefault(self._regions.get(id(module)), ([], []))
            if not any(w.root is where.root and w.path == where.path for w in wheres):
                wheres.append(where)
                names += [(where, n) for n in changed]

    def records(self) -> tuple[Recomputed, ...]:
        return tuple(
            Recomputed(
                tuple(self._modules.name_of(w) or "" for w in wheres),
                tuple(f"{self._modules.name_of(w)}.{n}".lstrip(".") for w, n in names),
                self._frames.site(spot),
            )
            for spot, (wheres, names) in self._found.items()
        )
