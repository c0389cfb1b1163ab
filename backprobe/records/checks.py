"""Records of opt-in checks: wrong backwards, wrong compiled regions, models that differ."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class FunctionChecked:
    """A custom ``Function`` whose backward disagrees with finite differences.

    It states the input, both values of a directional derivative, and the reason if it is known. ``what`` is
    ``gradient`` or ``second derivative``.

    :ivar again: if it is wrong only together with a second call before the backward: the line of that call. The values
        are those of an element of the gradient, with the second call and without it.
    :ivar state: the line of its forward that keeps a value outside ``ctx``.
    :ivar step: the step in which the script applied it twice, if it was seen without ``--check functions``.
    """

    name: str
    module: str | None
    applied: Site | None
    backward: Site | None
    what: str
    input: int
    analytic: float
    numeric: float
    why: str
    again: Site | None = None
    state: Site | None = None
    step: int | None = None


@record
@dataclass(frozen=True, slots=True)
class CompiledWrong:
    """A compiled region whose result differs from that of its operations, run one by one on the same inputs.

    :ivar function: the compiled function; ``compiled`` its line.
    :ivar op, site, module: the first operation with which it is wrong; ``None``: only together with later ones.
    :ivar what: ``forward``, or ``backward``: the gradients.
    :ivar off, usual: relative distance from float64, of the compiled code and of the operations.
    :ivar alone: the operation is wrong if it alone is compiled. ``script``: code that shows it on random numbers.
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
    """The first op where a run departs from float64, or one outermost module from another of the same structure.

    :ivar difference: relative difference of the op's results; ``None`` if not finite, or not comparable.
    :ivar attributes: settings of the module that differ; ``matching`` the modules before it, which agree.
    :ivar site: the line to look at; ``other`` a second one: of the op, or where a custom function is applied.
    :ivar against: ``model`` or ``float64``.
    :ivar rounding: both models compute the same, and one lost much more by rounding.
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
