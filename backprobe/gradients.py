"""Norms of parameters' gradients as backward calls gave them: before a script clips or scales them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .packed import Packed, PackedNodes, unpack
from .records import ACCUMULATE_SEQ, BackwardCall


class LeafGradients:
    """Reads the gradients of leaves out of backward calls, without making records of all their nodes."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], tuple[Packed, list[tuple[str, int]]]] = {}

    def of(self, calls: Iterable[BackwardCall]) -> tuple[dict[str, float], bool]:
        """Norm by parameter, and whether that is all of them: one that several calls add to is left out, since nobody
        measured the sum."""
        found: dict[str, float] = {}
        several: set[str] = set()
        for call in calls:
            for name, value in self._call(call):
                if name in found:
                    several.add(name)
                found[name] = value
        return {name: value for name, value in found.items() if name not in several}, not several

    def _call(self, call: BackwardCall) -> list[tuple[str, float]]:
        nodes = call.nodes
        if call.kind == "autograd.grad":  # its gradients are given away
            return []
        if not isinstance(nodes, PackedNodes):
            runs = [r for r in nodes if r.node.seq == ACCUMULATE_SEQ and r.parameter and r.grad_outputs]
            stats = [(r.parameter, r.grad_outputs[0]) for r in runs]
            return [(name, s.norm) for name, s in stats if name and s is not None and s.norm is not None]
        packed = nodes.packed
        key = (id(packed.layout), id(packed.signature))
        known = self._slots.get(key)
        if known is None:
            known = self._slots[key] = (packed, _slots(packed))
            if len(self._slots) > 64:
                del self._slots[next(iter(self._slots))]
        return [(name, packed.norms[slot]) for name, slot in known[1] if slot not in packed.unmeasured]


def _slots(packed: Packed) -> list[tuple[str, int]]:
    """By parameter, the slot that its gradient's norm is in: what unpacking gives where slots stand for norms."""
    count = len(packed.norms)
    runs = unpack(replace(packed, norms=range(count), unmeasured=frozenset(), bad={}))
    found = []
    for run in runs:
        stat = run.grad_outputs[0] if run.node.seq == ACCUMULATE_SEQ and run.grad_outputs else None
        if run.parameter and stat is not None and stat.norm is not None:
            found.append((run.parameter, int(stat.norm)))
    return found
