"""Modules of the user's with names of others: a script imports its own ``statistics.py``. No torch.

Python looks for a module in the script's folder first, and in those of ``PYTHONPATH``. A module of the standard library
that we have loaded before is taken out of ``sys.modules`` if one of them has a module of the same name, and is there
again while our own modules are loaded.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from types import ModuleType

#: What Python itself loads before a script: a script's own module of such a name is not found without us either.
_AT_START = frozenset(
    {"sys", "builtins", "_frozen_importlib", "_frozen_importlib_external", "_imp", "_thread", "_warnings", "_weakref"}
    | {"_io", "marshal", "posix", "time", "zipimport", "_codecs", "codecs", "encodings", "_signal", "_abc", "abc", "io"}
    | {"_stat", "stat", "_collections_abc", "genericpath", "posixpath", "os", "_sitebuiltins", "site"}
)
#: Packages that we use, and those that they use.
_REQUIRED = frozenset({"rich", "safetensors", "pygments", "markdown_it", "mdurl"})
_STANDARD = os.path.dirname(os.__file__)


class Shadows:
    """Keeps modules of ours and of a script apart that have the same name."""

    def __init__(self) -> None:
        own = [one for one in sys.path[: _standard_at(sys.path)] if not one.startswith(_STANDARD)]
        offered = set().union(*map(_offered, own))
        self._names = offered & (sys.stdlib_module_names | _REQUIRED) - _AT_START
        #: Modules that we use, while the script runs.
        self._ours = self._taken()

    def _taken(self) -> dict[str, ModuleType]:
        if not self._names:
            return {}
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in self._names}

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """What is imported within is what we would import."""
        if not self._names:
            yield
            return
        theirs, path = self._taken(), sys.path[:]
        sys.modules.update(self._ours)
        sys.path.sort(key=lambda one: not str(one).startswith(_STANDARD))
        try:
            yield
        finally:
            sys.path[:] = path
            self._ours = self._taken()
            sys.modules.update(theirs)


def _standard_at(path: list[str]) -> int:
    """Where the standard library is in it."""
    return next((at for at, one in enumerate(path) if one == _STANDARD), len(path))


def _offered(folder: str) -> set[str]:
    """The top-level modules in a folder."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            name, dot, rest = entry.name.partition(".")
            if (dot + rest in all_suffixes()) or os.path.isfile(os.path.join(folder, entry.name, "__init__.py")):
                found.add(name)
    return found
