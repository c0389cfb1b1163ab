"""Records of what ``torch.compile`` did in a run."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A line at which compiled code ends and Python continues; ``reason`` is torch's explanation."""

    reason: str
    site: Site | None


@record
@dataclass(frozen=True, slots=True)
class Recompiled:
    """A recompilation, because ``guard`` no longer held: an expression over the inputs, or torch's words.

    ``site`` is the line that made torch rely on it. It was observed after ``step`` had begun.
    """

    step: int
    guard: str
    site: Site | None


@record
@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A function that ``torch.compile`` compiled, or tried to: ``site`` is the line that defines it.

    ``after`` is the line after which it resumes, if it is the rest of a function whose graph broke. ``graphs`` counts
    the compiled forwards and ``backwards`` the compiled backwards, without those that torch read from its cache
    (``cached``). ``ops`` is the number of operations of the last graph, ``seconds`` the total compile time. ``skipped``
    states why it runs in Python after all; ``limit``: because of too many recompilations.
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
    """Names of the parameters that compiled regions received in steps that were inspected closely."""

    parameters: tuple[str, ...]


@record
@dataclass(frozen=True, slots=True)
class RefusedToCompile:
    """A graph that torch refused to compile, because it writes to a tensor that its backward needs.

    ``op`` at ``site`` writes to a tensor of shape ``shape`` that ``saver`` at ``saved_at`` had saved for backward.
    ``called``: the line that called the function.
    """

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
