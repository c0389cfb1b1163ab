"""Gradients and weights that something besides the backward made NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Spoilt:
    """All gradients of the backward were finite in ``step``; then ``site`` made NaN or Inf of something.

    :ivar what: ``gradient`` (written by the script), ``hooked gradient`` (by a hook that runs when a gradient has been
        accumulated), ``update`` (by the optimizer's step), ``weight`` (written by the script).
    :ivar op: what wrote, as far as that is known.
    :ivar why: what about it did so, where that can be told.
    :ivar sure: nothing else wrote to it.
    """

    step: int
    what: str
    parameters: tuple[str, ...]
    op: str
    site: Site | None
    module: str | None = None
    why: str = ""
    sure: bool = True


@record
@dataclass(frozen=True, slots=True)
class GradientHook:
    """A hook of the user's on the gradient that node ``node`` of a backward call is given: the line in it that makes
    what it returns or writes, and where it was put there. ``module``: it is a hook on that module's gradients, which
    this node calls."""

    backward: int
    node: int
    site: Site | None
    put: Site | None
    module: bool = False
