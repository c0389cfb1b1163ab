"""Batches that were kept, of steps with an alarm or an error."""

from __future__ import annotations

from dataclasses import dataclass

from .registry import record


@record
@dataclass(frozen=True)
class KeptBatch:
    """What modules were called with in step ``step`` is kept in ``file``, in the folder of the run.

    :ivar why: the kind of the alarm, or what went wrong.
    :ivar nbytes: of its tensors.
    :ivar calls: calls of outermost modules.
    :ivar notes: what was changed since, or left out, in words.
    """

    step: int
    why: str
    file: str
    nbytes: int
    calls: int
    notes: tuple[str, ...] = ()
