"""Records of checkpointed regions."""

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
    """A difference between the forward and the recomputation of a checkpointed region, called at ``region``.

    :ivar how: ``extra`` or ``missing`` (an op), ``other`` (another op), ``arguments`` (numbers and flags), ``frozen``
        or ``written`` (a parameter), ``shape``, ``dtype``, ``grad``, ``values``; ``unknown``: torch reports a
        difference, and the recorder saw the same ops; ``unheard``: torch reports a difference, and the recorder saw no
        op.
    :ivar cause: line of the first op that differs; ``forward`` and ``again`` are its results in the two runs.
    :ivar raised: the resulting error.
    :ivar changed: the line that changed an input of the op between the two runs.
    :ivar backwards: numbers of the backward calls in which it was observed.
    :ivar drawn: the earlier line that, by its source, draws a random number which differs between the runs.
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
    """A checkpointed region whose gradients differ from those without the checkpoint, on the same inputs.

    It states the affected inputs and parameters, the largest relative difference, and whether a gradient is missing.
    """

    region: Site | None
    module: str | None
    names: tuple[str, ...]
    difference: float
    missing: bool
