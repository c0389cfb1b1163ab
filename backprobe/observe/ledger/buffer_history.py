"""Keeps when a buffer changed, and by what. Buffers are compared after the steps in which they are read anyway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...torch_internals import private
from .changed_by import Change

if TYPE_CHECKING:
    import torch

#: Most lines that write to one buffer.
MAX_WRITERS = 8


@dataclass
class BatchCount:
    """The number of batches of a normalisation layer, which tells forwards in training mode from loads.

    :ivar version, value: at the last look; ``only_forwards``: only forwards have changed it since the look before.
    """

    version: int = -1
    value: int = -1
    only_forwards: bool = False

    def compare(self, count: Any) -> None:
        """Note whether since the last look only forwards wrote to the batch counter of a normalisation: one write for
        each. On an accelerator, only the number of writes is known, not the value.
        """
        version = count._version if count is not None else -1
        value = int(count) if private.is_readable(count) and count.is_cpu else -1
        more = version - self.version
        known = value >= 0 and self.value >= 0
        self.only_forwards = self.version >= 0 and more > 0 and (not known or value - self.value == more)
        self.version, self.value = version, value


@dataclass
class BufferHistory:
    """The changes of a buffer.

    :ivar ref, version, value: the tensor, its version and its largest absolute value at the last look.
    :ivar comparisons: how often it was compared; ``changes``: how often it had changed, of which ``forward_changes``
        times by a forward of its layer and ``unexplained_changes`` times for no known reason.
    :ivar first_change, last_change: the steps after which it had changed first and last; -1 for none.
    :ivar writes: how often each line was observed to write to it; ``was_written``: one was since the last look.
        ``ran_in_training``: its layer was observed to run in training mode since the last look.
    """

    ref: Callable[[], torch.Tensor | None] | None = None
    version: int = -1
    value: float | None = None
    comparisons: int = 0
    changes: int = 0
    first_change: int = -1
    last_change: int = -1
    forward_changes: int = 0
    unexplained_changes: int = 0
    writes: dict[Change, int] = field(default_factory=dict)
    was_written: bool = False
    ran_in_training: bool = False

    def add_write(self, change: Change) -> None:
        """Count a write of a line to the buffer."""
        self.was_written = True
        if change in self.writes or len(self.writes) < MAX_WRITERS:
            self.writes[change] = self.writes.get(change, 0) + 1

    def compare(self, step: int, tensor: torch.Tensor, value: float | None, trained: bool) -> None:
        """Compare the buffer with its state at the last look.

        :param value: its largest absolute value, if that was read now; ``trained``: its layer ran in training mode.
        """
        trained = trained or self.ran_in_training
        same = self.ref is not None and self.ref() is tensor
        version = -1 if tensor.is_inference() else tensor._version
        differs = value is not None and self.value is not None and value != self.value and value == value
        changed = differs or (same and (version != self.version or (trained and value is None)))
        if self.ref is not None:
            self.comparisons += 1
            if changed:
                self.changes += 1
                self.first_change, self.last_change = step if self.first_change < 0 else self.first_change, step
                self.forward_changes += trained
                self.unexplained_changes += not (trained or self.was_written)
        self.was_written = self.ran_in_training = False
        self.version, self.value = version, value
        if not same:
            self.ref = private.tensor_ref(tensor)
