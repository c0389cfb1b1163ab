"""Checksums of tensors whose memory code outside torch may write to: NumPy, DLPack, a data loader.

Note [Writes from outside]: a write from outside torch increments no version counter. A fingerprint is a checksum of a
tensor's memory. It is taken when an op saves data that no op made, and when the memory is handed out (``.numpy()``). It
is computed again when the backward begins. Data is fingerprinted only in closely inspected steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from ...source.frames import CodeLocation, Frames, variables
from ...torch_internals import private
from ...torch_internals.structure import attributes_of, is_a

#: Larger tensors, by number of elements, get no fingerprint.
_MAX_ELEMENTS = 4_000_000


@dataclass(frozen=True)
class Fingerprint:
    """A checksum of one tensor's memory, taken at the op that made the nodes ``seq`` to ``end - 1``."""

    seq: int
    end: int
    version: int
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    total: tuple[float, float]
    #: The line that handed out the memory (``.numpy()``); ``None`` for data.
    given: CodeLocation | None


class Fingerprints:
    """The fingerprints since the last backward, by storage address."""

    def __init__(self) -> None:
        self._fingerprints: dict[int, list[Fingerprint]] = {}

    def __bool__(self) -> bool:
        return bool(self._fingerprints)

    def add_inputs(self, args: Any, seq: int, end: int) -> None:
        """Fingerprint the tensors in `args` that are data (not views, no gradient).

        The op made the nodes `seq` to `end - 1`.
        """
        for t in args:
            if type(t) is torch.Tensor and not t.requires_grad and t._base is None:
                self._add(t, seq, end, None)

    def add_exposed(self, tensor: torch.Tensor, seq: int, spot: CodeLocation | None) -> None:
        """Fingerprint `tensor`, whose memory was handed out at `spot` to code that torch does not observe."""
        self._add(tensor, seq, seq, spot)

    def _add(self, tensor: torch.Tensor, seq: int, end: int, spot: CodeLocation | None) -> None:
        """Add a fingerprint of `tensor`, if it is dense, on the CPU and not too large.

        :param seq, end: the nodes of the op that may have saved it; `spot`: the line that handed out its memory.
        """
        if (
            not tensor.is_cpu
            or tensor.is_nested
            or tensor.layout is not torch.strided
            or not 0 < tensor.numel() <= _MAX_ELEMENTS
        ):
            return
        if private.is_unsafe_to_read(tensor):
            return
        try:
            storage = tensor.untyped_storage().data_ptr()
            version = tensor._version
        except (RuntimeError, NotImplementedError):
            return
        known = self._fingerprints.get(storage, [])
        if len(known) < 64 and len(self._fingerprints) < 4096:
            total = _checksum(tensor)
            shape = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)
            self._fingerprints[storage] = [*known, Fingerprint(seq, end, version, *shape, total, spot)]

    def find_changed(self, tensor: torch.Tensor, seq: int) -> Fingerprint | None:
        """Return the fingerprint that no longer matches the memory of `tensor`, saved by node `seq`.

        ``None`` if none differs.
        """
        try:
            known = self._fingerprints.get(tensor.untyped_storage().data_ptr())
        except (RuntimeError, NotImplementedError):  # a subclass that has no memory of its own
            return None
        if not known:
            return None
        # The op's own fingerprint, or else the first one after it that was taken when the memory was handed out.
        own = next((p for p in known if p.seq <= seq < p.end), None)
        own = own or next((p for p in known if p.given and p.seq > seq), None)
        if own is None or own.version != tensor._version:  # a change that torch sees
            return None
        with private.measuring():
            try:
                now = torch.empty(0, dtype=own.dtype).set_(tensor.untyped_storage(), own.offset, own.shape, own.stride)
            except RuntimeError:  # its memory was freed
                return None
        return own if _checksum(now) != own.total else None

    def clear(self) -> None:
        """Forget all fingerprints."""
        self._fingerprints.clear()


def _checksum(tensor: torch.Tensor) -> tuple[float, float]:
    """Return the sum and a position-weighted sum of the elements; the latter changes if elements are reordered."""
    with private.measuring():
        flat = tensor.detach().reshape(-1)
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        flat = flat.to(torch.float64)
        ramp = torch.arange(1, len(flat) + 1, dtype=torch.float64)
        return _number(flat.sum()), _number(torch.dot(flat, ramp))


def _number(value: torch.Tensor) -> float:
    """Return `value` as a float, with 0.5 in place of NaN so that equal contents compare equal."""
    number = float(value)
    return 0.5 if number != number else number


def arrays_over(storage: torch.UntypedStorage, frame: FrameType | None, frames: Frames) -> dict[str, CodeType | None]:
    """Return the names of NumPy arrays inside `storage` in the user's frames, with the code of the function.

    Searched are variables, and the attributes of objects in variables, which belong to no function.
    """
    first, last = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    found: dict[str, CodeType | None] = {}
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
                    found[name] = frame.f_code if name in local and local[name] is value else None
        frame = frame.f_back
    return found
