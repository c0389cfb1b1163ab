"""Records of gradients and weights that something other than the backward made NaN or Inf."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Spoilt:
    """A value that ``site`` made NaN or Inf in ``step``, after a backward whose gradients were all finite.

    :ivar what: ``gradient`` (written by the script), ``hooked gradient`` (by a hook that runs when a gradient has been
        accumulated), ``update`` (by the optimizer's step), ``weight`` (written by the script).
    :ivar op: the operation that wrote, if known.
    :ivar why: the property of it that caused the value, if known.
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
    """A user's hook on the gradient that node ``node`` of a backward call receives.

    ``site`` is the line in it that computes what it returns or writes, ``put`` the line that registered it. ``module``:
    it is a hook on that module's gradients, which this node calls.
    """

    backward: int
    node: int
    site: Site | None
    put: Site | None
    module: bool = False
