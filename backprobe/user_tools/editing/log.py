"""A bounded log of gradient edits, whose numbers are read from the device only on access."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

from ...basics.text import without_controls
from ...torch_internals import modes, norms


@dataclass(frozen=True)
class EditPlace:
    """A place at which a gradient is edited."""

    #: ``"parameter"``, ``"output"``, ``"input"``, ``"tensor"`` or ``"node"``.
    where: str
    #: Name of the parameter, module, tensor or node.
    name: str
    #: The path inside the module's output or input (``[0]``, ``.logits``); which of the node's gradients.
    path: str = ""
    #: Call number of the module, from 1; 0 for what has none.
    call: int = 0
    #: Other names of the same tensor or module (tied weights).
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the place as text, with other names and the call."""
        text = f"{self.where} {self.name + self.path!r}"
        if self.also:
            text += f" (also {', '.join(map(repr, self.also))})"
        return without_controls(text + (f", call {self.call}" if self.call > 1 else ""))


class Application:
    """The application of an action to a gradient. Norms stay on the device until they are read."""

    __slots__ = ("_measured", "action", "backward", "elements", "place")

    def __init__(self, place: EditPlace, action: str, backward: int, elements: int, measured: Any) -> None:
        """Take place, name of the action, backward call and size of the gradient.
        :param measured: the norms before and after and the number of changed elements, as tensors; ``None`` if not
            measured.
        """
        self.place, self.action = place, action
        #: Number of the backward call, from 1, since the edit was made.
        self.backward = backward
        #: Elements of the gradient.
        self.elements = elements
        self._measured = measured

    def _read(self, i: int) -> float | None:
        """Return measured number `i`, waiting for the device; ``None`` if it was not measured."""
        value = self._measured[i] if self._measured is not None else None
        return None if value is None else float(value)

    @property
    def norm_before(self) -> float | None:
        """The 2-norm of the incoming gradient; ``None`` if it was not measured."""
        return self._read(0)

    @property
    def norm_after(self) -> float | None:
        """The 2-norm of the result of the action."""
        return self._read(1)

    @property
    def changed(self) -> int | None:
        """The number of elements whose value changed; a NaN that stays NaN has not changed."""
        value = self._read(2)
        return None if value is None else int(value)

    def __repr__(self) -> str:
        """Return the application as one line of text. Waits for the device."""
        text = f"backward {self.backward}: {self.action} on {self.place}"
        if self.norm_before is None:
            return text
        return (
            f"{text}: norm {self.norm_before:.4g} -> {self.norm_after:.4g}, "
            f"{self.changed} of {self.elements} elements changed"
        )


@dataclass(frozen=True)
class Unused:
    """An edit, or one place of it, that was never applied."""

    #: The place; or the selection, if it matched nothing.
    target: str
    action: str
    reason: str

    def __str__(self) -> str:
        """Return the edit, its target and the reason as one line of text."""
        return f"{self.action} on {self.target}: {self.reason}"


class Log:
    """The last applications, and counts of all."""

    def __init__(self, keep: int, measure: bool) -> None:
        """Begin empty.
        :param keep: how many applications are kept.
        :param measure: whether norms are measured.
        """
        self.entries: deque[Application] = deque(maxlen=keep)
        #: (number of the rule, kind of place, name) -> applications.
        self.counts: dict[tuple[int, str, str], int] = {}
        #: The same for the other names of places: of tied weights, and of modules whose output is one tensor.
        self._also: set[tuple[int, str, str]] = set()
        self.total = 0
        self._measure = measure
        self._lock = threading.Lock()

    def add(self, rule: int, action: str, place: EditPlace, backward: int, before: torch.Tensor, after: object) -> None:
        """Add the application of rule number `rule`, which made `after` of the gradient `before`."""
        measured = _measure(before, after) if self._measure else None
        entry = Application(place, action, backward, before.numel(), measured)
        key = (rule, place.where, place.name)
        with self._lock:  # device threads of the engine may come at once
            self.entries.append(entry)
            self.counts[key] = self.counts.get(key, 0) + 1
            self._also.update((rule, place.where, name) for name in place.also)
            self.total += 1

    def has(self, rule: int, where: str, name: str) -> bool:
        """Return whether a rule was applied at a place, under this or another name of it."""
        return (rule, where, name) in self.counts or (rule, where, name) in self._also


def _measure(
    before: object, after: object
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None] | None:
    """Return norms and the number of changed elements as tensors of no dimension, without waiting for the device."""
    if modes.is_unsafe_to_read(before) or modes.is_unsafe_to_read(after):
        return None
    try:
        return _measured(before, after)
    except (RuntimeError, NotImplementedError):  # ``is_grads_batched``, and kinds of tensors that have no norm
        return None


def _measured(
    before: torch.Tensor, after: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None] | None:
    """Return the same as ``_measure``, which handles errors."""
    with torch.no_grad(), modes.disable_function_modes():
        before, after = before.detach(), after.detach()
        if before.layout is torch.sparse_coo:
            first, second = before.coalesce(), after.coalesce()
            same = first is second or first.indices().equal(second.indices())
            before, after = first.values(), second.values()
            both = _norm(before), _norm(after)
            return (*both, _changed(before, after, both[1]) if same else None)
        if before.layout is not torch.strided:
            return None
        norm = _norm(before)
        if after is before:
            return norm, norm, torch.zeros((), dtype=torch.int64)
        norm_after = _norm(after)
        return norm, norm_after, _changed(before, after, norm_after)


def _norm(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the norm of a tensor on its device; ``None`` if it is neither real nor complex floating-point."""
    return norms.device_norm(tensor) if tensor.is_floating_point() or tensor.is_complex() else None


def _changed(before: torch.Tensor, after: torch.Tensor, norm_after: Any) -> torch.Tensor:
    """Return the number of elements that differ, as a tensor; two NaN count as equal."""
    differs = before != after
    # A NaN differs from itself. Two more passes are needed only if there is one; off the CPU that is not known yet.
    if norm_after is not None and not (norm_after.is_cpu and not norm_after.isnan()):
        differs &= ~(before.isnan() & after.isnan())
    return torch.count_nonzero(differs)
