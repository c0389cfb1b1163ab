"""Keeps when a buffer changed, and by what. Buffers are compared after the steps in which they are read anyway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...torch_internals import private
from .changed_by import Change

#: Most lines that write to one buffer.
MAX_WRITERS = 8


@dataclass
class BatchCount:
    """The number of batches of a normalisation layer, which tells forwards in training mode from loads.

    :ivar version, value: at the last look; ``forwards``: only forwards have changed it since the look before.
    """

    version: int = -1
    value: int = -1
    forwards: bool = False

    def look(self, count: Any) -> None:
        """Compare the number with that of the last look. On an accelerator, its value is not read."""
        version = count._version if count is not None else -1
        value = int(count) if private.is_readable(count) and count.is_cpu else -1
        more = version - self.version
        known = value >= 0 and self.value >= 0
        self.forwards = self.version >= 0 and more > 0 and (not known or value - self.value == more)
        self.version, self.value = version, value


@dataclass
class BufferHistory:
    """The changes of a buffer.

    :ivar ref, version, value: the tensor, its version and its largest absolute value at the last look.
    :ivar writes: how often each line was observed to write to it; ``written``: one was since the last look.
        ``ran``: its layer was observed to run in training mode since the last look.
    """

    ref: Any = None
    version: int = -1
    value: float | None = None
    looks: int = 0
    changed: int = 0
    first: int = -1
    last: int = -1
    forwards: int = 0
    unknown: int = 0
    writes: dict[Change, int] = field(default_factory=dict)
    written: bool = False
    ran: bool = False

    def wrote(self, change: Change) -> None:
        self.written = True
        if change in self.writes or len(self.writes) < MAX_WRITERS:
            self.writes[change] = self.writes.get(change, 0) + 1

    def look(self, step: int, tensor: Any, value: float | None, forwards: bool) -> None:
        """Compare the buffer with its state at the last look.

        :param value: its largest absolute value, if that was read now; ``forwards``: its layer ran in training mode.
        """
        forwards = forwards or self.ran
        same = self.ref is not None and self.ref() is tensor
        version = -1 if tensor.is_inference() else tensor._version
        differs = value is not None and self.value is not None and value != self.value and value == value
        changed = differs or (same and (version != self.version or (forwards and value is None)))
        if self.ref is not None:
            self.looks += 1
            if changed:
                self.changed += 1
                self.first, self.last = step if self.first < 0 else self.first, step
                self.forwards += forwards
                self.unknown += not (forwards or self.written)
        self.written = self.ran = False
        self.version, self.value = version, value
        if not same:
            self.ref = private.tensor_ref(tensor)
