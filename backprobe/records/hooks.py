"""Users' hooks that do not do what they are for."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class HookSeen:
    """A user's backward hook on modules that cannot do its work.

    ``reason``: ``output`` (what the module returns is no tensor or tuple; its type is the detail), ``forward`` (the
    module was not called as a module), ``inplace`` (its output was changed in place, at ``bypass``), ``legacy``
    (``register_backward_hook`` sees the last node only; how many there are is the detail), ``compiled`` (it was
    registered when the module had been compiled), ``frozen`` (nothing that the module gave had a gradient), ``quiet``
    (it was called with gradient mode off only), ``container`` (a list or dictionary of modules; which is the detail).
    """

    reason: str
    modules: tuple[str, ...]
    details: tuple[str, ...]
    site: Site | None
    bypass: Site | None


@record
@dataclass(frozen=True, slots=True)
class StaleRead:
    """A hook read ``.grad`` of a leaf at ``stale``, before the backward that called it had written it.

    :ivar on: ``tensor`` (a hook on the leaf itself) or ``module`` (a backward hook of a module).
    :ivar empty: it was ``None``; otherwise it was of an earlier backward.
    """

    parameter: str
    on: str
    stale: Site
    hook: Site | None
    empty: bool
    step: int
