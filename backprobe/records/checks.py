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
    """The first module whose results differ between two outermost modules of one structure.

    ``difference`` is relative to the largest value; ``attributes`` are settings that differ; ``matching`` the modules
    that returned before it. ``inside``: it is the module around this one, which is the same in both and gave something
    else.
    """

    module: str
    class_name: str
    difference: float
    attributes: tuple[str, ...]
    matching: tuple[str, ...]
    site: Site | None
    inside: str = ""
