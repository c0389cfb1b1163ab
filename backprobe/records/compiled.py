"""What ``torch.compile`` did in a run."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A line at which what is compiled ends, so that it runs in Python: ``reason`` is what torch says of it."""

    reason: str
    site: Site | None


@record
@dataclass(frozen=True, slots=True)
class Recompiled:
    """A function was compiled again, as ``guard`` no longer held: an expression over its inputs, or torch's words.
    ``site`` is the line that made torch rely on it. It was seen after ``step`` had begun."""

    step: int
    guard: str
    site: Site | None


@record
@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A function that ``torch.compile`` compiled, or tried to: ``site`` is the line that defines it.

    ``after`` is the line after which it goes on, where it is the rest of a function whose graph broke. ``graphs`` were
    made of its forward and ``backwards`` of its backward (those that torch read from its cache, ``cached``, are not
    counted in them). ``ops`` is how many operations the last graph had. ``seconds`` is what all of it took. ``skipped``
    says why it runs in Python after all; ``limit``: as it was compiled anew too often.
    """

    function: str
    site: Site | None
    after: int | None
    graphs: int
    backwards: int
    cached: int
    ops: int
    seconds: float
    first_step: int
    recompiled: tuple[Recompiled, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    skipped: str = ""
    limit: bool = False


@record
@dataclass(frozen=True, slots=True)
class GivenToCompiled:
    """Parameters that compiled regions were given, by name, in steps that were looked at closely."""

    parameters: tuple[str, ...]


@record
@dataclass(frozen=True, slots=True)
class RefusedToCompile:
    """Torch did not compile a graph, as in it ``op`` at ``site`` writes to what ``saver`` at ``saved_at`` had kept for
    backward, of shape ``shape``. ``called``: the line that called the function."""

    op: str
    site: Site
    module: str | None
    saver: str
    saved_at: Site | None
    shape: tuple[int, ...]
    saved_version: int
    found_version: int
    step: int
    called: Site | None
