"""Fingerprints of tensors whose memory somebody else may write to: NumPy, DLPack, a buffer that a loader fills.

Note [Writes from outside]: a write from outside torch moves no version counter. What is taken here is a checksum of a
saved tensor's memory at the op that saved it (data that no op made) or when its memory was given out (``.numpy()``),
and it is taken again when the backward begins. Data only in steps that are looked at closely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...source.frames import CodeLocation, Frames, variables
from ...torch_internals import private
from ...torch_internals.structure import attributes_of, is_a

#: Elements: more than this are not looked at.
_LIMIT = 4_000_000


@dataclass(frozen=True)
class Print:
    """A checksum of one tensor's memory, taken by the op that made the nodes ``seq`` to ``end - 1``."""

    seq: int
    end: int
    version: int
    shape: Any
    stride: Any
    offset: int
    dtype: Any
    total: tuple[float, float]
    #: Where the memory was given out; ``None`` for data.
    given: CodeLocation | None


class Fingerprints:
    """By storage, what was in tensors when they were used or given out, since the last backward."""

    def __init__(self) -> None:
        self._prints: dict[int, list[Print]] = {}

    def __bool__(self) -> bool:
        return bool(self._prints)

    def used(self, args: Any, seq: int, end: int) -> None:
        """An op was called with `args` and made nodes: those that are data are looked at."""
        for t in args:
            if type(t) is torch.Tensor and not t.requires_grad and t._base is None:
                self._take(t, seq, end, None)

    def given(self, tensor: Any, seq: int, spot: CodeLocation | None) -> None:
        """The memory of `tensor` was given out to code that torch does not see."""
        self._take(tensor, seq, seq, spot)

    def _take(self, tensor: Any, seq: int, end: int, spot: CodeLocation | None) -> None:
        if (
            not tensor.is_cpu
            or tensor.is_nested
            or tensor.layout is not torch.strided
            or not 0 < tensor.numel() <= _LIMIT
        ):
            return
        if private.hands_off(tensor):
            return
        try:
            storage = tensor.untyped_storage().data_ptr()
            version = tensor._version
        except (RuntimeError, NotImplementedError):
            return
        known = self._prints.get(storage, [])
        if len(known) < 64 and len(self._prints) < 4096:
            total = _checksum(tensor)
            shape = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)
            self._prints[storage] = [*known, Print(seq, end, version, *shape, total, spot)]

    def changed(self, tensor: Any, seq: int) -> Print | None:
        """The print of a saved tensor's memory that is not what it was, for the op that made node `seq`."""
        try:
            known = self._prints.get(tensor.untyped_storage().data_ptr())
        except (RuntimeError, NotImplementedError):  # a subclass that has no memory of its own
            return None
        if not known:
            return None
        # What the op saw: its own use, or the first time after it that the memory was given out.
        own = next((p for p in known if p.seq <= seq < p.end), None)
        own = own or next((p for p in known if p.given and p.seq > seq), None)
        if own is None or own.version != tensor._version:  # a change that torch sees
            return None
        with private.measuring():
            try:
                now = torch.empty(0, dtype=own.dtype).set_(tensor.untyped_storage(), own.offset, own.shape, own.stride)
            except RuntimeError:  # its memory was given back
                return None
        return own if _checksum(now) != own.total else None

    def clear(self) -> None:
        self._prints.clear()


def _checksum(tensor: Any) -> tuple[float, float]:
    """Two sums that show a change, also one of order."""
    with private.measuring():
        flat = tensor.detach().reshape(-1)
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        flat = flat.to(torch.float64)
        ramp = torch.arange(1, len(flat) + 1, dtype=torch.float64)
        return _number(flat.sum()), _number(torch.dot(flat, ramp))


def _number(value: Any) -> float:
    """A float that equals itself: NaN counts as one value."""
    number = float(value)
    return 0.5 if number != number else number


def arrays_over(storage: Any, frame: Any, frames: Frames) -> list[str]:
    """What the user's code calls NumPy arrays that lie in a storage: variables, and attributes of a local ``self``."""
    first, last = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    found: list[str] = []
    while frame is not None:
        if frames.is_user(frame.f_code):
            local = variables(frame)
            held = list(local.items())
            for owner in list(local.values()):
                if type(owner).__module__ != "builtins" and not is_a(owner, (torch.Tensor, torch.nn.Module, type)):
                    held += attributes_of(owner).items()
            for name, value in held:
                interface = getattr(type(value), "__array_interface__", None) and value.__array_interface__
                if isinstance(interface, dict) and first <= interface["data"][0] < last and name not in found:
                    found.append(name)
        frame = frame.f_back
    return found
