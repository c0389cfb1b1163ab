"""Separation of equally named modules: a script may import its own ``statistics.py``. No torch.

Python looks for a module in the script's folder first, and in those of ``PYTHONPATH``. If one of them has a module of
the same name as a standard-library module that backprobe has loaded, the latter is removed from ``sys.modules``, and is
put back while backprobe's own modules are loaded.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from types import ModuleType

#: Modules that Python itself loads before a script: a script's own module of such a name is not found without backprobe
#: either.
_LOADED_AT_START = frozenset(
    {"sys", "builtins", "_frozen_importlib", "_frozen_importlib_external", "_imp", "_thread", "_warnings", "_weakref"}
    | {"_io", "marshal", "posix", "time", "zipimport", "_codecs", "codecs", "encodings", "_signal", "_abc", "abc", "io"}
    | {"_stat", "stat", "_collections_abc", "genericpath", "posixpath", "os", "_sitebuiltins", "site"}
)
#: Packages that backprobe uses, and their dependencies.
_REQUIRED = frozenset({"rich", "safetensors", "pygments", "markdown_it", "mdurl"})
_STANDARD_LIBRARY = os.path.dirname(os.__file__)


class Shadows:
    """Separates backprobe's modules from the script's modules of the same name."""

    def __init__(self) -> None:
        """Find the modules that the script's folders shadow, and remove backprobe's ones from ``sys.modules``."""
        own = [one for one in sys.path[: _standard_at(sys.path)] if not one.startswith(_STANDARD_LIBRARY)]
        offered = set().union(*map(_offered, own))
        self._names = offered & (sys.stdlib_module_names | _REQUIRED) - _LOADED_AT_START
        #: Modules that backprobe uses, while the script runs.
        self._ours = self._taken()

    def _taken(self) -> dict[str, ModuleType]:
        """Remove the modules with these names from ``sys.modules``, and return them."""
        if not self._names:
            return {}
        return {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in self._names}

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Make imports in the block find backprobe's modules rather than the script's."""
        if not self._names:
            yield
            return
        theirs, path = self._taken(), sys.path[:]
        sys.modules.update(self._ours)
        sys.path.sort(key=lambda one: not str(one).startswith(_STANDARD_LIBRARY))
        try:
            yield
        finally:
            sys.path[:] = path
            self._ours = self._taken()
            sys.modules.update(theirs)


def _standard_at(path: list[str]) -> int:
    """Return the position of the standard library in `path`."""
    return next((at for at, one in enumerate(path) if one == _STANDARD_LIBRARY), len(path))


def _offered(folder: str) -> set[str]:
    """Return the names of the modules and packages that an import would find in a folder."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            name, dot, rest = entry.name.partition(".")
            if (dot + rest in all_suffixes()) or os.path.isfile(os.path.join(folder, entry.name, "__init__.py")):
                found.add(name)
    return found
