"""Steps, and the optimizers that end them."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class ParameterStat:
    """2-norms of a parameter, its gradient and its last update (new minus old), where they were measured."""

    name: str
    weight: float | None
    grad: float | None
    update: float | None


@record
@dataclass(frozen=True, slots=True)
class Step:
    """A backward call, or several that accumulate, and the optimizer step after them.

    ``loss`` is the sum of the scalar roots of the backward calls whose gradients were added up, ``calls`` of them; what
    a ``GradScaler`` had multiplied by, ``scale``, is divided out. ``seconds`` runs from the end of the step before,
    ``watching`` is what of it went into measuring as far as that can be told.

    :ivar resident: bytes of the process in memory when the step was over, where the system says so.
    :ivar allocated: bytes of tensors on CUDA devices then, where there are any.
    :ivar graphs: graphs of steps before the last one that were alive when the step began.
    """

    index: int
    seconds: float
    loss: float | None
    backwards: tuple[int, ...]
    parameters: tuple[ParameterStat, ...] = ()
    watching: float = 0.0
    calls: int = 1
    scale: float = 1.0
    resident: int | None = None
    allocated: int | None = None
    graphs: int = 0


@record
@dataclass(frozen=True, slots=True)
class OptimizerSeen:
    """An optimizer: its class, where it was made, how many tensors it holds, and how many of them belong to no module
    any longer and never got a gradient. ``empty``: how many of its groups hold none; ``twice``: how many tensors it was
    given more than once; ``frozen``: how many were not to get a gradient when it stepped."""

    name: str
    site: Site | None
    tensors: int
    orphans: int
    groups: int = 1
    empty: int = 0
    twice: int = 0
    frozen: int = 0
