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
class CompiledWrong:
    """A compiled region that gave something else than its operations, which were run one by one on the same inputs.

    :ivar function: the compiled one, ``compiled`` its line.
    :ivar op, site, module: the first operation with which it is wrong; ``None``: only with what comes after it.
    :ivar what: ``forward``, or ``backward``: the gradients.
    :ivar off, usual: relative distance from float64, of what the compiler made and of the operations.
    :ivar alone: the operation is wrong when it alone is compiled. ``script``: shows that on random numbers.
    """

    function: str
    op: str | None
    site: Site | None
    module: str | None
    what: str
    off: float
    usual: float
    alone: bool
    script: str
    step: int
    compiled: Site | None


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
