"""Breakpoints: where and under which condition to stop, and the nodes of a call that they match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..basics.errors import BackprobeError
from ..basics.select import Selection, described, nothing_chosen, selector
from ..records import ACCUMULATE_SEQ

if TYPE_CHECKING:
    from .backward_graph import BackwardGraph, NodeInfo
    from .provenance import Provenance

PHASES = ("before", "after", "both")
FILE_AND_LINE = re.compile(r"^(?P<file>.*\.py[w]?|<[^>]*>):(?P<line>\d+)$")


class Breakpoint:
    """A breakpoint: the backward stops if all given options hold.

    :param options: ``BreakpointOptions`` (``options.py``); ``None`` means not given.
    :ivar number: its number in lists and messages.
    :ivar hits: how often all options held.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Check the options and compile the condition.

        :raises BackprobeError: an option is wrong, or two do not go together.
        """
        given = options.get
        self.node: Selection = given("node")
        self.module: Selection = given("module")
        self.on: str | None = given("on")
        self.parameter: Selection = given("parameter")
        self.line: str | None = given("line")
        self.seq: int | None = given("seq")
        #: An expression, or a function of the ``Stop``; see ``conditions.py``.
        self.when: Any = given("when")
        alone = self.bare and self.when is not None
        self.phase: str = _or(given("phase"), "both" if alone else "before")
        self.count: int = _or(given("count"), 1)
        self.temporary = bool(given("temporary"))
        self.number, self.hits, self.enabled = 0, 0, True
        if self.on not in (None, "enter", "leave"):
            raise BackprobeError(
                f"on is {self.on!r}; it is 'enter' or 'leave', or left out to stop at each node of the module"
            )
        if self.on is not None and self.module is None:
            raise BackprobeError(f"on={self.on!r} needs module=: it tells what is entered or left")
        if self.phase not in PHASES:
            raise BackprobeError(f"phase is {self.phase!r}; it is one of {', '.join(map(repr, PHASES))}")
        if self.on is not None and self.phase != "before":
            raise BackprobeError(
                f"phase={self.phase!r} does not go with on={self.on!r}: a module is entered or left before a node"
            )
        if self.count < 1:
            raise BackprobeError(f"count={self.count}: it is 1 or more, the number of the first hit that stops")
        self._file, self._line = _file_and_line(self.line)
        #: The compiled condition, if it is an expression.
        self.code = _compiled(self.when) if isinstance(self.when, str) else None
        #: The list that holds it, and the callback for changes.
        self.owner: list[Breakpoint] | None = None
        self.tell: Callable[[], None] | None = None

    @property
    def bare(self) -> bool:
        """Whether it names no place."""
        return all(x is None for x in (self.node, self.module, self.parameter, self.line, self.seq))

    def disable(self) -> None:
        """Do not stop here until ``enable``."""
        self.enabled = False
        self._changed()

    def enable(self) -> None:
        """Stop here again."""
        self.enabled = True
        self._changed()

    def remove(self) -> None:
        """Remove it from its debugger's list. Does nothing if it was removed already."""
        if self.owner is not None and self in self.owner:
            self.owner.remove(self)
            self._changed()

    def on_condition(self, when: object) -> None:
        """Stop only if `when` holds; ``None``: always.

        :raises BackprobeError: it is not an expression.
        """
        self.code = _compiled(when) if isinstance(when, str) else None
        self.when = when
        self._changed()

    def _changed(self) -> None:
        """Tell the debugger that the breakpoint has changed."""
        if self.tell is not None:
            self.tell()

    def __str__(self) -> str:
        """Return the breakpoint's options in words."""
        parts = []
        if self.node is not None:
            parts.append(f"node {described(self.node)}")
        if self.module is not None:
            parts.append(
                f"{(self.on or 'nodes') + ' of' if self.on is None else self.on} module {described(self.module)}"
            )
        if self.parameter is not None:
            parts.append(f"parameter {described(self.parameter)}")
        if self.line is not None:
            parts.append(f"line {self.line}")
        if self.seq is not None:
            parts.append(f"sequence number {self.seq}")
        if self.when is not None:
            parts.append(
                f"if {self.when if isinstance(self.when, str) else getattr(self.when, '__name__', repr(self.when))}"
            )
        if self.phase != "before" and not (self.bare and self.phase == "both"):
            parts.append({"after": "after it ran", "both": "before and after"}[self.phase])
        if self.count > 1:
            parts.append(f"from hit {self.count} on")
        return ", ".join(parts) or "every node"

    def __repr__(self) -> str:
        state = "" if self.enabled else ", disabled"
        return f"<breakpoint {self.number}: {self}{state}, {self.hits} hits>"

    # What it means for a graph

    def fits(self, info: NodeInfo) -> bool:
        """Return whether node type, sequence number, module, line and parameter of this breakpoint match the node
        `info`. With ``on``: whether the node is inside the module. The condition is not evaluated.
        """
        if self.node is not None and not selector(self.node)(info.name, info):
            return False
        if self.seq is not None and info.seq != self.seq:
            return False
        return self._fits_place(info.place)

    def _fits_place(self, place: Provenance) -> bool:
        """Return whether a node's parameter, module and line match the breakpoint's."""
        if self.parameter is not None and (
            place.parameter is None or not selector(self.parameter)(place.parameter, None)
        ):
            return False
        if self.module is not None and not self.modules_of(place.module):
            return False
        if self.line is not None:
            return any(site.line == self._line and _same_file(site.file, self._file) for site in place.lines)
        return True

    def named(self, graph: BackwardGraph) -> list[int]:
        """Return the numbers of the nodes of `graph` that the breakpoint matches, apart from its condition. Runs in
        every backward call, so it inspects as little as possible.
        """
        found: Iterable[int] = range(len(graph)) if graph.needed is None else sorted(graph.needed)
        if self.seq is not None:
            found = [i for i in found if graph.seqs[i] == self.seq]
        if isinstance(self.node, (str, re.Pattern)):
            fits = selector(self.node)
            from .backward_graph import short

            names = {name for name in set(graph.plan.names) if fits(short(name), None)}
            found = [i for i in found if graph.plan.names[i] in names]
        elif self.node is not None:
            fits = selector(self.node)
            found = [i for i in found if fits(graph.name(i), graph.info(i))]
        if self.parameter is not None:
            found = [i for i in found if graph.seqs[i] == ACCUMULATE_SEQ]
        if self.parameter is None and self.module is None and self.line is None:
            return list(found)
        if not graph.may_fit(self._fits_place):
            return []
        # Many nodes share a place.
        known: dict[int, bool] = {}
        places = graph.places if found else []
        chosen = []
        for i in found:
            place = places[i]
            holds = known.get(id(place))
            if holds is None:
                holds = known[id(place)] = self._fits_place(place)
            if holds:
                chosen.append(i)
        return chosen

    def modules_of(self, module: str | None) -> list[str]:
        """Return those of `module` and its ancestors that match: a submodule's nodes also belong to its ancestors."""
        chosen = selector(self.module)
        from .provenance import around

        return [] if module is None else [path for path in around(module) if chosen(path, None)]

    def check(self, graph: BackwardGraph) -> None:
        """Raise an error if it can never stop in this call.

        :raises BackprobeError: no node of `graph` matches; the message lists similar names.
        """
        if (self.module is not None or self.line is not None) and not graph.forward.watched:
            from .provenance import UNKNOWN

            raise BackprobeError(f"no node fits {self}: {UNKNOWN}")
        if self.bare or self.named(graph):
            return
        infos = [info for info in graph.infos if graph.runs(info.index)]
        if self.parameter is not None:
            raise nothing_chosen(sorted({i.parameter for i in infos if i.parameter}), self.parameter, "parameter")
        if self.module is not None:
            raise nothing_chosen(sorted({i.module for i in infos if i.module}), self.module, "module")
        if self.line is not None:
            sites = {site for info in infos for site in info.place.lines}
            near = {s for s in sites if _same_file(s.file, self._file)} or {i.place.site for i in infos if i.place.site}
            lines = [f"{s.file.rpartition('/')[2]}:{s.line}" for s in sorted(near, key=lambda s: (s.file, s.line))]
            raise BackprobeError(f"no node was made at {self.line}; nodes were made at {', '.join(lines[:12])}")
        if self.seq is not None:
            seqs = [i.seq for i in infos if i.seq is not None]
            raise BackprobeError(
                f"no node has the sequence number {self.seq}; they are {min(seqs, default=0)} to {max(seqs, default=0)}"
            )
        raise nothing_chosen(sorted({i.name for i in infos}), self.node, "node type")


class NamedNodes:
    """The nodes of one backward call that each breakpoint matches, computed once per breakpoint."""

    def __init__(self, graph: BackwardGraph) -> None:
        """Take the graph; which nodes a breakpoint matches is found when it is first needed."""
        self.graph = graph
        #: Breakpoint -> its nodes; ``True``: every node. With ``on``: node -> the nodes of each matching module around
        #: it.
        self._named: dict[Breakpoint, Any] = {}

    def concerns(self, point: Breakpoint, i: int, before: bool) -> bool:
        """Return whether `point` applies before (or after) node `i` at this moment, apart from its condition."""
        named = self._of(point)
        if point.on is None:
            if point.phase == ("after" if before else "before"):
                return False
            return named is True or i in named
        groups = named.get(i)
        if groups is None or before is not (point.on == "enter"):
            return False
        done = self.graph.done
        return any(group.isdisjoint(done) if before else group <= done for group in groups)

    def hooked(self, point: Breakpoint, before: bool) -> Iterable[int]:
        """Return the numbers of the nodes before (or after) which `point` can stop."""
        if point.on is not None:
            wanted = before is (point.on == "enter")
        else:
            wanted = point.phase != ("after" if before else "before")
        if not wanted:
            return ()
        named = self._of(point)
        return range(len(self.graph)) if named is True else named

    def _of(self, point: Breakpoint) -> Any:
        """Return the nodes that a breakpoint matches, as ``_find`` does, from a cache."""
        named = self._named.get(point)
        if named is None:
            named = self._named[point] = self._find(point)
        return named

    def _find(self, point: Breakpoint) -> Any:
        """Return ``True`` for a breakpoint at every node, else the set of nodes that it matches.

        With ``on``: a dict from each node to the sets of nodes of the matching modules around it.
        """
        graph = self.graph
        if point.bare:
            return True
        fits = point.named(graph)
        if point.on is None:
            return frozenset(fits)
        modules: dict[str, set[int]] = {}
        for i in fits:
            for path in point.modules_of(graph.places[i].module):
                modules.setdefault(path, set()).add(i)
        groups: dict[int, list[frozenset[int]]] = {}
        for members in modules.values():
            frozen = frozenset(members)
            for i in frozen:
                groups.setdefault(i, []).append(frozen)
        return groups


def _or(value: object, default: object) -> Any:
    """Return `value`, or `default` if it is ``None``."""
    return default if value is None else value


def _compiled(when: str) -> CodeType:
    """Return the code of a condition.

    :raises BackprobeError: it is not an expression.
    """
    try:
        return compile(when.strip(), "<condition>", "eval")
    except SyntaxError as error:
        raise BackprobeError(f"the condition {when!r} is not a Python expression: {error.msg}") from None


def _file_and_line(line: str | None) -> tuple[str, int]:
    """Return the file and the number of the line in ``FILE:LINE``; empty and 0 for ``None``.

    :raises BackprobeError: it has another form.
    """
    if line is None:
        return "", 0
    match = FILE_AND_LINE.match(line)
    if match is None:
        raise BackprobeError(f"line is {line!r}; give FILE:LINE, such as 'model.py:41'")
    return match["file"].replace("\\", "/"), int(match["line"])


def _same_file(path: str, wanted: str) -> bool:
    """Return whether `path` is the file `wanted`, or ends with it."""
    path = path.replace("\\", "/")
    return path == wanted or path.endswith("/" + wanted.lstrip("./"))
