"""Tracks which parameters a backward call gave a gradient."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...graphs.packed_calls import Signature, unpack
from ..forward.leaves import LeafTensor, Leaves
from ..schedule.losses import is_zero
from .pending_call_record import PendingCallRecord

if TYPE_CHECKING:
    import torch


class ReachedLeaves:
    """Counts the calls that reached each leaf, and notes whether a gradient was not zero."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        #: By layout: its signature, and each leaf that got a gradient with the slot of its norm.
        self._slots: dict[int, tuple[Signature, list[tuple[LeafTensor, int | None]]]] = {}
        self._updates = 0

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Detect gradients that no backward call made.

        The script computes them itself: per sample, with ``torch.func``, or from other processes. The check visits each
        parameter, so it does not run in every step.
        """
        self._updates += 1
        if self._updates > 3 and self._updates % 64:
            return
        for group in optimizer.param_groups:
            for p in group["params"]:
                leaf = self._leaves.known(p)
                if leaf is not None and not leaf.reached and leaf.ref() is p:
                    grad = getattr(p, "grad", None)
                    if grad is not None and is_zero(grad) is not True:
                        leaf.reached, leaf.alive = 1, True

    def backward_recorded(self, running: object, recorded: PendingCallRecord) -> None:
        """Count, for each leaf that a recorded call reached, the gradient that it got, and whether it was not zero."""
        norms, live = recorded.norms, recorded.live
        self._leaves.count_recorded_call()
        if recorded.raised is None and live.has_all_gradients:  # every leaf has had a gradient: nothing to look up
            for leaf in live.named.values():
                leaf.reached += 1
                for part in leaf.parts:
                    part.reached += 1
        else:
            reached = self._slots_of(recorded)
            for leaf, slot in reached:
                leaf.count_gradient(recorded.step, slot is None or norms[slot] != 0.0)
            live.has_all_gradients = len(reached) == len(live.named) and all(leaf.alive for leaf, _ in reached)
        if recorded.step < 3 or not recorded.index % 64:
            self._leaves.refresh()

    backward_repeated = backward_recorded

    def _slots_of(self, recorded: PendingCallRecord) -> list[tuple[LeafTensor, int | None]]:
        """Return the leaves that a call reached and the slots of their norms.

        They are computed once for each signature, by unpacking a call whose norms are the numbers of their slots.
        """
        live = recorded.live
        known = self._slots.get(live.index)
        if known is not None and known[0] is recorded.signature:
            return known[1]
        numbers = [float(i) for i in range(len(recorded.norms))]
        runs = unpack(dataclasses.replace(recorded.packed(), norms=numbers, bad={}))
        found: list[tuple[LeafTensor, int | None]] = []
        for i, leaf in live.named.items():
            grad_outputs = runs[i].grad_outputs
            if grad_outputs and grad_outputs[0] is not None:
                norm = grad_outputs[0].norm
                found.append((leaf, None if norm is None else int(norm)))
        if len(self._slots) > 64:
            self._slots.clear()
        self._slots[live.index] = (recorded.signature, found)
        return found
