"""Norms of parameters' gradients: as backward calls returned them, or as the optimizer used them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..graphs.packed_calls import Packed, PackedNodes, unpack
from ..records import ACCUMULATE_SEQ, BackwardCall, together

#: Where the gradients of a step were measured: not at all, by its backward call, or by the optimizer that used them
#: (all calls of the step added up, after a script has clipped or unscaled them).
NO_SOURCE, BACKWARD, OPTIMIZER = 0, 1, 2
#: The description shown beside a norm of each source: one series of norms has one source (``OneKind``).
WORDS = {NO_SOURCE: "", BACKWARD: "before any clipping", OPTIMIZER: "after any clipping and unscaling"}


@dataclass(frozen=True)
class Gradients:
    """Norms of a step's gradients by parameter, and the total norm, which is unknown if some norms are.

    :ivar calls: backward calls of the step whose nodes were recorded.
    :ivar clip_norm: the total norm that clipping found, if it counts as the total.
    """

    norms: Mapping[str, float]
    source: int = NO_SOURCE
    whole: bool = True
    calls: int = 0
    clip_norm: float | None = None

    @property
    def total(self) -> float | None:
        """The 2-norm of all gradients together; if some are not known, the norm that clipping found, or ``None``."""
        return together([*self.norms.values()]) if self.norms and self.whole else self.clip_norm


class LeafGradients:
    """Reads the gradients of leaves from backward calls, without creating records of all their nodes."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], tuple[Packed, list[tuple[str, int]]]] = {}

    def of(self, calls: Iterable[BackwardCall]) -> tuple[dict[str, float], bool]:
        """Return the gradient norms of the calls by parameter, and whether these are all.

        Parameters to which several calls add are left out, since the norm of the sum was not measured.
        """
        found: dict[str, float] = {}
        several: set[str] = set()
        for call in calls:
            for name, value in self._call(call):
                if name in found:
                    several.add(name)
                found[name] = value
        return {name: value for name, value in found.items() if name not in several}, not several

    def _call(self, call: BackwardCall) -> list[tuple[str, float]]:
        """Return name and gradient norm of each parameter that a backward call reached; none for ``autograd.grad``.

        For packed nodes, the positions of the norms are kept by layout, so that the nodes need not be unpacked again.
        """
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


def gradients_of(
    leaves: LeafGradients,
    calls: Iterable[BackwardCall],
    used: Iterable[tuple[str, float | None]],
    kind: int = NO_SOURCE,
) -> Gradients:
    """Return the gradients of a step with these backward calls.

    :param used: by parameter, the norm that the optimizer used; ``None`` or -1 if not measured.
    :param kind: ``BACKWARD`` or ``OPTIMIZER``: only norms measured there; ``NO_SOURCE``: those of the backward call, if
        one call produced all gradients, otherwise those of the optimizer.
    """
    calls = [*calls]
    norms, whole = leaves.of(calls) if kind != OPTIMIZER else ({}, True)
    if (norms and whole) or kind == BACKWARD:
        return Gradients(norms, BACKWARD if norms else NO_SOURCE, whole, len(calls))
    met = {name: value for name, value in used if value is not None and not value < 0}
    if met:
        return Gradients(met, OPTIMIZER, calls=len(calls))
    return Gradients(norms, BACKWARD if norms else NO_SOURCE, whole, len(calls))


class OneKind:
    """Reads the gradients of steps with norms of one kind: that of the first step that has them for all its parameters.

    Kinds are ``BACKWARD`` and ``OPTIMIZER``: norms before and after clipping form no common series. Steps with only the
    other kind have no norms. The total norm that clipping found counts as one before clipping, until a step shows that
    it is another: of some of the parameters, or without a scaler's factor.

    :ivar kind: the kind; ``NO_SOURCE`` until it is known.
    """

    def __init__(self, kind: int = NO_SOURCE) -> None:
        self.kind = kind
        self._leaves = LeafGradients()
        #: Whether the norm before clipping equals that of the backward, as far as both are known.
        self._clips_all = True

    def of(
        self,
        calls: Iterable[BackwardCall],
        used: Iterable[tuple[str, float | None]],
        clip_norm: float | None = None,
    ) -> Gradients:
        """Return the gradients of the next step: see ``gradients_of``.

        :param clip_norm: the total norm that clipping found.
        """
        calls = [*calls]
        found = gradients_of(self._leaves, calls, used, self.kind)
        if clip_norm is not None and self._clips_all and self.kind != OPTIMIZER:
            if found.source == BACKWARD and found.total is not None:
                self._clips_all = _alike(found.total, clip_norm)
            elif not found.norms or found.source == OPTIMIZER:
                found = Gradients({}, BACKWARD, calls=len(calls), clip_norm=clip_norm)
        if self.kind == NO_SOURCE and found.total is not None:
            self.kind = found.source
        return found


def _alike(one: float, other: float) -> bool:
    """Return whether two norms are equal up to the rounding of half precision."""
    if not (math.isfinite(one) and math.isfinite(other)):
        return True
    return abs(one - other) <= 0.02 * max(one, other)


def _slots(packed: Packed) -> list[tuple[str, int]]:
    """Return each parameter with the position of its gradient's norm in ``packed.norms``.

    It unpacks the nodes with positions in place of norms.
    """
    count = len(packed.norms)
    runs = unpack(replace(packed, norms=range(count), unmeasured=frozenset(), bad={}))
    found = []
    for run in runs:
        stat = run.grad_outputs[0] if run.node.seq == ACCUMULATE_SEQ and run.grad_outputs else None
        if run.parameter and stat is not None and stat.norm is not None:
            found.append((run.parameter, int(stat.norm)))
    return found
