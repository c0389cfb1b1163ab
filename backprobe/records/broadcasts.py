"""Records of operations that broadcast their inputs against each other on the way to a loss."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class SilentBroadcast:
    """An operation that pairs each element of one input with each of the other, and whose result a loss adds up.

    Both inputs have the same elements by number, and their shapes differ in dimensions of size 1 only: ``(8, 1)`` and
    ``(8,)``.

    :ivar shapes: of the two inputs.
    :ivar result: the shape to which they broadcast.
    :ivar step: the first step in which it was observed.
    :ivar failed: the backward call of a loss that the result reaches.
    :ivar called: the call that gives an input to the function of ``site``, if that has it as a parameter.
    """

    op: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    result: tuple[int, ...]
    site: Site | None
    module: str | None
    step: int
    failed: Site | None
    called: Site | None = None
