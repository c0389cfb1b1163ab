"""What is looked for only when asked: backwards that are wrong, models that differ."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class FunctionChecked:
    """A custom ``Function`` whose backward disagrees with finite differences: for which input, by what values of a
    directional derivative, and why, where that can be told. ``what`` is ``gradient`` or ``second derivative``."""

    name: str
    module: str | None
    applied: Site | None
    backward: Site | None
    what: str
    input: int
    analytic: float
    numeric: float
    why: str


@record
@dataclass(frozen=True, slots=True)
class Divergence:
    """The first op where a run departs from float64, or one outermost module from another of one structure.

    :ivar difference: relative, of what the op gives; ``None`` where it is not finite, or cannot be compared.
    :ivar attributes: settings of the module that differ; ``matching`` the modules before it, which agree.
    :ivar site: the line to look at; ``other`` a second one: of the op, or of where a custom function is applied.
    :ivar against: ``model`` or ``float64``.
    :ivar rounding: both models calculate the same, and one has lost much more by rounding.
    :ivar what: the difference in words; ``op``, ``phase``, ``step``, ``node``: of the op.
    """

    module: str
    class_name: str
    difference: float | None
    attributes: tuple[str, ...] = ()
    matching: tuple[str, ...] = ()
    site: Site | None = None
    against: str = "model"
    what: str = ""
    op: str = ""
    phase: str = "forward"
    step: int | None = None
    node: str | None = None
    other: Site | None = None
    rounding: bool = False
