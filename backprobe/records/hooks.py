"""Records of users' hooks that do not do what they are meant to."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class HookSeen:
    """A user's backward hook on modules that cannot work.

    ``reason``: ``output`` (the module returns no tensor or tuple; its type is the detail), ``forward`` (the module was
    not called as a module), ``inplace`` (its output was modified in place, at ``bypass``), ``legacy``
    (``register_backward_hook`` sees the last node only; their number is the detail), ``compiled`` (it was registered
    after the module was compiled), ``frozen`` (no output of the module had a gradient), ``quiet`` (the module was
    called with gradient mode off only), ``container`` (a list or dictionary of modules; its type is the detail).
    """

    reason: str
    modules: tuple[str, ...]
    details: tuple[str, ...]
    site: Site | None
    bypass: Site | None


@record
@dataclass(frozen=True, slots=True)
class StaleRead:
    """A read of ``.grad`` of a leaf in a hook, at ``stale``, before the running backward had written it.

    :ivar on: ``tensor`` (a hook on the leaf itself) or ``module`` (a backward hook of a module).
    :ivar empty: it was ``None``; otherwise it came from an earlier backward.
    """

    parameter: str
    on: str
    stale: Site
    hook: Site | None
    empty: bool
    step: int


@record
@dataclass(frozen=True, slots=True)
class HooksPileUp:
    """Hooks with the same code on the same objects, whose number grew and never fell.

    :ivar names: the objects: modules, parameters, or the class of an optimizer; ``method``: the method that registers
        such hooks; ``function``: the name of the hook.
    :ivar count: the largest number on one object; ``first``, ``last``: the steps of the first and last look at which
        it had grown.
    :ivar varies: the hooks hold different tensors, so each of them may be meant.
    :ivar site: the line that likeliest registers them.
    """

    names: tuple[str, ...]
    method: str
    function: str
    count: int
    first: int
    last: int
    varies: bool
    site: Site
