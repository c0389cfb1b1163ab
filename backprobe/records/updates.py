"""Records of clipping and updates without effect."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class UselessClipping:
    """Calls at ``clipped`` that clip gradients which no optimizer uses, or by a bound that cannot be meant.

    ``reason``: ``empty`` (the call gets no parameters), ``no-gradients`` (its parameters have no gradients yet),
    ``used`` (the optimizer has used these gradients already), ``other`` (another optimizer's parameters), ``scaled``
    (the gradients still have the factor of a ``GradScaler``).

    :ivar by_value: the calls are of ``clip_grad_value_``.
    :ivar optimizer: the optimizer that steps with gradients that are not clipped; ``made`` its line.
    :ivar step: the first step that is known to be concerned.
    :ivar calls: the number of calls that were examined.
    :ivar bound: the bound of the last call. ``norm``: the largest total norm with which the optimizer stepped; for
        ``scaled`` the median norm before clipping, with the factor divided out. ``scale``: the factor.
    :ivar given: the line that assigns the variable which the call is given.
    """

    reason: str
    by_value: bool
    optimizer: str
    step: int
    calls: int
    bound: float
    norm: float | None
    scale: float | None
    clipped: Site | None
    given: Site | None
    made: Site | None
