"""Finds modules in checkpointed regions whose buffers change a second time when the region is recomputed."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from types import FrameType

from torch import nn

from ...records import Recomputed
from ...source.frames import CodeLocation
from ...source.roots import ModuleCallRef
from ...torch_internals import code_objects, private
from ...torch_internals.references import IdentityMap
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_CHECKPOINT_CODES = frozenset({code_objects.CHECKPOINT, code_objects.CHECKPOINT_SEQUENTIAL})


@dataclass
class _ChangedBuffers:
    """The buffers of a module that changed when a region was recomputed, its call, and the line of the checkpoint."""

    module: weakref.ref[nn.Module]
    where: ModuleCallRef
    buffers: list[str]
    region: CodeLocation | None


class Recompute(Tracker):
    """Tracker that compares version counters of a module's buffers before and after its calls during a backward."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without modules."""
        self._modules, self._frames = context.modules, context.frames
        #: The line of the checkpoint around each module's first call.
        self._regions: IdentityMap[CodeLocation] = IdentityMap()
        self._before: list[tuple[nn.Module, dict[str, int]]] = []
        #: By id of the reference to the module, which identifies it after it is gone.
        self._found: dict[int, _ChangedBuffers] = {}

    def stateful_module_called(self, module: nn.Module) -> None:
        """Note the version counters of a module's buffers when it is called in a recomputation; in a forward, its
        checkpoint.
        """
        if self._modules.in_backward:
            self._before.append((module, {n: b._version for n, b in module._buffers.items() if b is not None}))
        elif module.training and (self._modules.inspecting or self._new_here(module)):
            self._in_forward(module)

    def _new_here(self, module: nn.Module) -> bool:
        """Return whether a module is called in a checkpoint and was not seen in one before."""
        return module not in self._regions and private.checkpoint_mark() is not None

    def _in_forward(self, module: nn.Module) -> None:
        """Record the line of the checkpoint around a call of a module with buffers in the forward, if there is one."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code in _CHECKPOINT_CODES:
                spot = self._frames.spot(frame)
                if spot is not None:
                    self._regions[module] = spot
                    if (found := self._found.get(id(weakref.ref(module)))) is not None:
                        found.region = spot
                return
            frame = frame.f_back

    def stateful_module_returned(self, module: nn.Module, where: ModuleCallRef) -> None:
        """Note which buffers of `module` its call in a checkpoint's recomputation has changed: they are updated
        twice.
        """
        if not self._before or self._before[-1][0] is not module:
            return
        before = self._before.pop()[1]
        changed = [n for n, b in module._buffers.items() if b is not None and b._version > before.get(n, b._version)]
        if changed and "num_batches_tracked" in changed:  # running statistics are written without a version change
            changed = [n for n, b in module._buffers.items() if b is not None]
        if changed and len(self._found) < 1000:
            ref = weakref.ref(module)
            if id(ref) not in self._found:
                self._found[id(ref)] = _ChangedBuffers(ref, where, changed, self._regions.get(module))

    def records(self) -> tuple[Recomputed, ...]:
        """Return the modules whose buffers change twice, one record for each line that calls a checkpoint."""
        by_line: dict[CodeLocation | None, list[_ChangedBuffers]] = {}
        for changed in self._found.values():
            by_line.setdefault(changed.region, []).append(changed)
        name_of = self._modules.name_of
        return tuple(
            Recomputed(
                tuple(name_of(one.where) or "" for one in found),
                tuple(f"{name_of(one.where)}.{name}".lstrip(".") for one in found for name in one.buffers),
                self._frames.site(spot),
            )
            for spot, found in by_line.items()
        )
