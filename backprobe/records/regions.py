"""Checkpointed regions."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Recomputed:
    """Modules whose buffers changed again while a checkpoint, called at ``region``, was recomputed."""

    modules: tuple[str, ...]
    buffers: tuple[str, ...]
    region: Site | None


@record
@dataclass(frozen=True, slots=True)
class RegionDiffers:
    """What a checkpointed region, called at ``region``, did differently when it ran again.

    :ivar how: ``extra`` or ``missing`` (an op), ``other`` (another op), ``arguments`` (numbers and flags), ``frozen``
        or ``written`` (a parameter), ``shape``, ``dtype``, ``grad``, ``values``; ``unknown``: torch says so, and we saw
        the same ops; ``unheard``: torch says so, and we saw no op.
    :ivar cause: line of the first op that differs; ``forward`` and ``again`` are what it gave in the two runs.
    :ivar raised: the error that it led to.
    :ivar changed: the line that changed what the op depends on, between the two runs.
    :ivar backwards: numbers of the backward calls in which it was seen.
    :ivar drawn: the line before it, as the code reads, that draws a random number which is another in each run.
    """

    how: str
    region: Site | None
    cause: Site | None
    failed: Site | None
    module: str | None
    op: str
    forward: str
    again: str
    raised: str
    step: int
    backwards: tuple[int, ...]
    changed: Site | None = None
    drawn: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class RegionGradient:
    """A checkpointed region whose gradients differ from those without the checkpoint, when both are run on the same
    inputs: of which inputs and parameters, the largest relative difference, and whether one is missing."""

    region: Site | None
    module: str | None
    names: tuple[str, ...]
    difference: float
    missing: bool
