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
