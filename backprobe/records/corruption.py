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
class GradientOverwritten:
    """An in-place write to a gradient that the engine had given to another node too, which runs later.

    :ivar by: ``backward`` (of a custom function) or ``hook`` (on the result of ``op``).
    :ivar node, op, module: the node whose backward or hook wrote, its operation and module.
    :ivar giver, shared: the operation that gives the gradient to two others, and its line.
    :ivar parameters: those whose gradients go through the other receiver.
    :ivar site: the line that wrote; ``made``: the line that applied the function, or that registered the hook.
    :ivar failed: the line of the backward call.
    """

    step: int
    by: str
    node: str
    op: str
    module: str | None
    giver: str
    parameters: tuple[str, ...]
    site: Site | None
    made: Site | None
    shared: Site | None
    failed: Site | None


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
