"""Records of batches that were saved for steps with an alarm or an error."""

from __future__ import annotations

from dataclasses import dataclass

from .registry import record


@record
@dataclass(frozen=True)
class KeptBatch:
    """The arguments of the modules in step ``step``, saved in ``file`` in the run's folder.

    :ivar why: the kind of the alarm, or the error.
    :ivar nbytes: bytes of its tensors.
    :ivar calls: calls of outermost modules.
    :ivar notes: changes since then and omissions, in words.
    """

    step: int
    why: str
    file: str
    nbytes: int
    calls: int
    notes: tuple[str, ...] = ()
