"""Tables that other parts of a document refer to by index: source lines, modules, parameters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from ..basics.privacy import masked_source
from ..basics.text import packaged
from ..records import FreeParameter, ModuleCall, Parameter, Site, together
from ..records.places import cell, lasting

#: Maximum size of a source file in a page, and of all files together.
SOURCE = 1 << 20


class Sites:
    """The source lines of a document, each stored once and referred to by its number."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._numbers: dict[Site, int] = {}
        #: Files of the user, and of libraries.
        self._mine: set[str] = set()
        self._libraries: set[str] = set()

    def of(self, site: Site | None) -> int:
        """Return the number of a line, adding it if it is new; -1 for ``None``."""
        if site is None:
            return -1
        self._mine.add(site.file)
        return self._number(site)

    def stack(self, library: tuple[Site, ...]) -> list[int]:
        """Return the indices of library lines, each called by the one before it."""
        self._libraries.update(site.file for site in library)
        return [self._number(site) for site in library]

    def _number(self, site: Site) -> int:
        """Return the number of a line, adding it if it is new."""
        return self._numbers.setdefault(site, len(self._numbers))

    def short(self, file: str) -> str:
        """Return the display name of a file.

        Relative to the script's folder if it is inside; a library's from its package name on; a notebook's cell by its
        number.
        """
        if (number := cell(file)) is not None:
            return number
        if file in self._libraries:
            return packaged(file)
        if self._folder is not None:
            try:
                relative = os.path.relpath(file, self._folder)
            except ValueError:  # another drive
                return file
            if not relative.startswith(".."):
                return relative
        return file

    def rows(self) -> list[dict[str, object]]:
        """Return all lines as the page shows them, with secrets in their text masked."""
        return [
            {"file": self.short(s.file), "line": s.line, "function": s.function, "text": masked_source(s.text)}
            for s in self._numbers
        ]

    def sources(self, kept: Mapping[str, str]) -> list[dict[str, object]]:
        """Return the files of all sites, the user's first, with the text stored in the run: no file is opened."""
        rows, room = [], SOURCE
        libraries = self._libraries - self._mine
        files = dict.fromkeys(site.file for site in self._numbers)
        for file in sorted(files, key=libraries.__contains__):
            text = kept.get(lasting(file))
            if text is not None and len(text) <= room:
                room -= len(text)
                rows.append({"file": self.short(file), "lines": text.splitlines(), "library": file in libraries})
        return rows


class Modules:
    """The modules of a run in preorder of their first call; modules that were never called come last in
    their parent.
    """

    def __init__(self, calls: Sequence[ModuleCall], others: Iterable[str]) -> None:
        known: dict[str, ModuleCall] = {}
        self._count: dict[str, int] = {}
        for call in calls:
            known.setdefault(call.path, call)
            self._count[call.path] = max(self._count.get(call.path, 0), call.call)
        below: dict[str, list[str]] = {"": []}
        above: dict[str, str] = {}
        for path in [*known, *others]:
            while path not in below:  # it, and those above it that are new
                below[path] = []
                parent = path.rpartition(".")[0]
                above.setdefault(path, parent)
                path = parent
        for path, parent in above.items():
            below[parent].append(path)
        self._known = known
        self.paths: list[str] = []
        self._numbers: dict[str, int] = {}
        stack = [""]
        while stack:
            path = stack.pop()
            self._numbers[path] = len(self.paths)
            self.paths.append(path)
            stack.extend(reversed(below[path]))

    def of(self, path: str | None) -> int:
        """Return the index of a module by its path; -1 if it is not known."""
        return -1 if path is None else self._numbers.get(path, -1)

    def rows(self, sites: Sites) -> list[dict[str, object]]:
        """Return all modules as the page shows them: path, class, parent, number of calls, line of the call."""
        rows = []
        for path in self.paths:
            call = self._known.get(path)
            rows.append(
                {
                    "path": path,
                    "class": call.class_name if call else "",
                    "parent": -1 if path == "" else self._numbers[path.rpartition(".")[0]],
                    "calls": self._count.get(path, 0),
                    "site": sites.of(call.site if call else None),
                }
            )
        return rows


class Order:
    """Names with their indices."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._numbers = {name: i for i, name in enumerate(names)}

    def of(self, name: str | None) -> int:
        """Return the index of a name; -1 if it is not known."""
        return -1 if name is None else self._numbers.get(name, -1)


class Parameters(Order):
    """Parameters in forward order: by module, and within one in the order in which they were recorded."""

    def __init__(self, listed: Sequence[Parameter | FreeParameter], named: Iterable[str], modules: Modules) -> None:
        self._facts = {p.name: p for p in listed}
        names = dict.fromkeys([*self._facts, *named])
        self._module = {name: modules.of(owner(name)) for name in names}
        super().__init__(sorted(names, key=lambda name: self._module[name]))

    def rows(self, sites: Sites) -> list[dict[str, object]]:
        """Return all parameters as the page shows them: shape, whether it requires and gets a gradient, line."""
        rows = []
        for name in self.names:
            fact = self._facts.get(name)
            if fact is None:  # its shape was not recorded
                fact = FreeParameter(name, (-1,), True, 0, False, None)
            rows.append(
                {
                    "name": name,
                    "module": self._module[name],
                    "shape": list(fact.shape),
                    "requires_grad": fact.requires_grad,
                    "reached": fact.reached,
                    "alive": fact.alive,
                    "trained": fact.trained,
                    "defined": sites.of(fact.defined if isinstance(fact, Parameter) else None),
                    "free": not isinstance(fact, Parameter),
                }
            )
        return rows


def owner(parameter: str) -> str:
    """Return the path of the module that owns a parameter of this name."""
    return parameter.rpartition(".")[0]


def total(values: Iterable[float]) -> float:
    """Return the 2-norm of a whole from the 2-norms of its parts; -1 if none is known. Negative values are unknown
    parts.
    """
    known = [v for v in values if not v < 0]
    return together(known) if known else -1.0
