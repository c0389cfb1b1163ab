"""The bits of parameters that other ranks have too: whether they are equal is found when the records come together.

Note [Steps that all ranks look at]: no rank asks another, so all have to choose the same steps: the first sixteen, then
four between each power of two and the next. What a budget records is another matter, and differs from rank to rank.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed

from ...records import Replica, Replicas, ReplicaState
from ...source.frames import Spot
from ...torchside import private, replicas
from ..backward.calls import Running
from ..backward.recorded import Recorded
from ..events import Tracker
from ..forward.oplog import op_name
from ..scene import Scene
from .waiting import in_use

#: Numbers that are kept of a run, and lines that wrote.
MOST, LINES = 300_000, 1000
#: Optimizers that bring weights together only now and then.
_APART = frozenset({"PostLocalSGDOptimizer"})


def due(step: int) -> bool:
    """Whether a step is looked at: Note [Steps that all ranks look at]."""
    return step < 16 or step % (1 << (step.bit_length() - 3)) == 0


class ReplicaWatch(Tracker):
    """Sums up bits around the steps of optimizers, where there are other ranks."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._names = scene, scene.names
        self._tensors: dict[str, Replica] = {}
        self._states: list[ReplicaState] = []
        #: By optimizer: how many tensors it held, its number, and names and references of what it holds.
        self._known: dict[int, tuple[int, int, list[str], list[Any]]] = {}
        self._now: tuple[Any, int, list[int | None], list[int | None]] | None = None
        self._inside, self._kept = 0, 0
        self._backward: Spot | None = None
        self._ids: set[int] = set()
        self._written: list[tuple[int, int, str, Spot | None]] = []
        self._of_id: dict[int, str] = {}
        self._rank: tuple[int, int] = (0, 1)

    def backward_over(self, running: Running, recorded: Recorded) -> None:
        self._inside = 0
        if running.inside is None:
            self._backward = running.spot

    def call_counted(self, spot: Spot | None, roots: Any) -> None:
        self._inside, self._backward = 0, spot

    def wrote(self, func: Any, written: list[Any], seq: int, frame: Any) -> None:
        if self._ids and not self._inside and len(self._written) < LINES:
            for tensor in written:
                if id(tensor) in self._ids:
                    spot = self._scene.frames.spot(frame)
                    self._written.append((self._scene.steps.index, id(tensor), op_name(func), spot))

    def data_put(self, tensor: Any, frame: Any) -> None:
        if id(tensor) in self._ids and not self._inside and len(self._written) < LINES:
            spot = self._scene.frames.spot(frame)
            self._written.append((self._scene.steps.index, id(tensor), "assignment to .data", spot))

    def optimizer_begins(self, optimizer: Any) -> None:
        self._inside += 1
        step = self._scene.steps.index
        if self._inside > 1 or not due(step) or type(optimizer).__name__ in _APART or not in_use():
            return
        self._rank = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if self._rank[1] < 2 or self._kept > MOST:
            return
        tensors = self._listed(optimizer)[2]
        with private.unseen(), private.unnoticed(), torch.no_grad():
            before = replicas.bits_of(tensors)
            gradients = replicas.bits_of([None if t is None else t.grad for t in tensors])
        self._now = optimizer, step, before, gradients

    def optimizer_over(self, optimizer: Any) -> None:
        self._inside = max(self._inside - 1, 0)
        now = self._now
        if now is None or now[0] is not optimizer:
            return
        self._now = None
        number, names, tensors = self._listed(optimizer)
        with private.unseen(), private.unnoticed(), torch.no_grad():
            after = replicas.bits_of(tensors)
        order = {name: at for at, name in enumerate(names)}
        places = [order.get(name) for name in self._tensors]
        rows = [tuple(None if at is None else row[at] for at in places) for row in (now[2], now[3], after)]
        backward = self._scene.frames.site(self._backward)
        self._states.append(ReplicaState(now[1], number, rows[0], rows[1], rows[2], backward))
        self._kept += 3 * len(names)

    def _listed(self, optimizer: Any) -> tuple[int, list[str], list[Any]]:
        """What `optimizer` holds, and buffers beside it."""
        held = [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, torch.Tensor)]
        known = self._known.get(id(optimizer))
        if known is not None and known[0] == len(held):
            return known[1], known[2], [ref() for ref in known[3]]
        how, order, parts, buffers = self._models()
        held.sort(key=lambda p: order.get(id(p), len(order)))
        names: list[str] = []
        tensors: list[Any] = []
        for p in held:
            name = self._names.of(p)
            mesh, placements, place = replicas.place_of(p)
            kind = "dtensor" if placements else how.get(id(p), "")
            if id(p) in parts:
                kind = "fsdp"
                place = place or (self._rank[0],)
            self._add(name, p, Replica(name, tuple(p.shape), kind, place, mesh, placements), names, tensors)
        for name, buffer in buffers:
            self._add(name, buffer, Replica(name, tuple(buffer.shape), "buffer"), names, tensors)
        number = known[1] if known is not None else len(self._known)
        self._known[id(optimizer)] = len(held), number, names, [private.tensor_ref(t) for t in tensors]
        return number, names, tensors

    def _add(self, name: str, tensor: Any, replica: Replica, names: list[str], tensors: list[Any]) -> None:
        self._tensors.setdefault(name, replica)
        names.append(name)
        tensors.append(tensor)
        self._ids.add(id(tensor))
        self._of_id[id(tensor)] = name

    def _models(self) -> tuple[dict[int, str], dict[int, int], set[int], list[tuple[str, Any]]]:
        """By id of a parameter what keeps it equal, and its place in its model; those in FSDP; buffers."""
        how: dict[int, str] = {}
        order: dict[int, int] = {}
        parts: set[int] = set()
        buffers: list[tuple[str, Any]] = []
        for root in self._names.modules.roots:
            module = root.ref()
            if module is None:
                continue
            for _, wrapper in replicas.in_ddp(module):
                ignored = getattr(wrapper, "parameters_to_ignore", ())
                how.update({id(p): "ddp" for name, p in wrapper.module.named_parameters() if name not in ignored})
                buffers += replicas.kept_buffers(wrapper)
            parts |= replicas.in_fsdp1(module) | replicas.in_fsdp2(module)
            for p in module.parameters():
                order.setdefault(id(p), len(order))
        return how, order, parts, buffers

    def records(self) -> tuple[Replicas, ...]:
        if not self._states:
            return ()
        site = self._scene.frames.site
        written = tuple((step, self._of_id[at], what, site(spot)) for step, at, what, spot in self._written)
        width = len(self._tensors)
        states = tuple(
            replace(s, before=_wide(s.before, width), gradients=_wide(s.gradients, width), after=_wide(s.after, width))
            for s in self._states
        )
        return (Replicas(*self._rank, tuple(self._tensors.values()), states, written),)


def _wide(row: tuple[int | None, ...], width: int) -> tuple[int | None, ...]:
    """A row of a time when fewer tensors were known."""
    return row + (None,) * (width - len(row))
