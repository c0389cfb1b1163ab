"""Breakpoints: where and when to stop, from keyword arguments or from a line of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from ..errors import BackprobeError
from ..select import Selection, described, nothing_chosen, selector
from ..torchside.measure import shape_of
from . import values
from .called import CallGraph, NodeInfo
from .sight import UNKNOWN

if TYPE_CHECKING:
    from .stop import Stop

#: A Python expression (``"norm > 10"``, ``"nonfinite"``) or a function of the ``Stop``.
Condition = str | Callable[["Stop"], Any] | None
PHASES = ("before", "after", "both")
_PLACE = re.compile(r"^(?P<file>.*\.py[w]?|<[^>]*>):(?P<line>\d+)$")
_TYPE = re.compile(r"^[\w*?\[\]:!.-]+$")
#: A word that only a condition has.
_CONDITION = re.compile(r"[<>=()]|\b(nonfinite|norm|and|or|not)\b")
#: Words that begin a form, and are no node type.
_WORDS = frozenset({"module", "mod", "param", "parameter"})
FORMS = (
    "a node type (AddmmBackward0, *Norm*), a module's path ('module PATH [enter|leave]', or one with a dot in it), "
    "'param NAME', 'file.py:41', '#NUMBER' (sequence number), 'norm > 10' or 'nonfinite'; a condition may follow any "
    "of the others after 'if'"
)


class Breakpoint:
    """One breakpoint. All that is given must hold.

    :ivar number: how lists and messages call it.
    :ivar hits: how often all of it held.
    """

    def __init__(
        self,
        *,
        node: Selection = None,
        module: Selection = None,
        on: str | None = None,
        parameter: Selection = None,
        line: str | None = None,
        seq: int | None = None,
        when: Condition = None,
        phase: str | None = None,
        count: int = 1,
        temporary: bool = False,
    ) -> None:
        if on not in (None, "enter", "leave"):
            raise BackprobeError(
                f"on is {on!r}; it is 'enter' or 'leave', or left out to stop at each node of the module"
            )
        if on is not None and module is None:
            raise BackprobeError(f"on={on!r} needs module=: it tells what is entered or left")
        bare = all(x is None for x in (node, module, parameter, line, seq))
        if phase is None:
            phase = "both" if bare and when is not None else "before"
        if phase not in PHASES:
            raise BackprobeError(f"phase is {phase!r}; it is one of {', '.join(map(repr, PHASES))}")
        if on is not None and phase != "before":
            raise BackprobeError(
                f"phase={phase!r} does not go with on={on!r}: a module is entered or left before a node"
            )
        if count < 1:
            raise BackprobeError(f"count={count}: it is 1 or more, the number of the first hit that stops")
        self.node, self.module, self.on, self.parameter = node, module, on, parameter
        self.line, self.seq, self.when, self.phase = line, seq, when, phase
        self.count, self.temporary = count, temporary
        self.number, self.hits, self.enabled = 0, 0, True
        self._file, self._line = _file_and_line(line)
        self._code = _compiled(when) if isinstance(when, str) else None
        self._owner: list[Breakpoint] | None = None

    @property
    def bare(self) -> bool:
        """Whether it names no place."""
        return all(x is None for x in (self.node, self.module, self.parameter, self.line, self.seq))

    def disable(self) -> None:
        self.enabled = False

    def enable(self) -> None:
        self.enabled = True

    def remove(self) -> None:
        """Take it out of its debugger's list. Twice is as good as once."""
        if self._owner is not None and self in self._owner:
            self._owner.remove(self)

    def __str__(self) -> str:
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
        """Whether it names this node (modules that are entered or left: one inside them)."""
        place = info.place
        if self.node is not None and not selector(self.node)(info.name, info):
            return False
        if self.seq is not None and info.seq != self.seq:
            return False
        if self.parameter is not None and (place.parameter is None or not self._parameter(place.parameter)):
            return False
        if self.module is not None and not self.modules_of(place.module):
            return False
        if self.line is not None:
            site = place.site
            return site is not None and site.line == self._line and _same_file(site.file, self._file)
        return True

    def _parameter(self, name: str) -> bool:
        return selector(self.parameter)(name, None)

    def modules_of(self, module: str | None) -> list[str]:
        """The chosen ones among `module` and those around it: a module's nodes are also those of the modules in it."""
        chosen = selector(self.module)
        found = []
        while module is not None:
            if chosen(module, None):
                found.append(module)
            if not module:
                break
            module = module.rpartition(".")[0]
        return found

    def check(self, graph: CallGraph) -> None:
        """Say so where it can never stop in this call.

        :raises BackprobeError: no node of `graph` fits, with names that look like what was given.
        """
        infos = [info for info in graph.infos if graph.runs(info.index)]
        if (self.module is not None or self.line is not None) and not graph.sight.known:
            raise BackprobeError(f"no node fits {self}: {UNKNOWN}")
        if self.bare or any(map(self.fits, infos)):
            return
        if self.parameter is not None:
            raise nothing_chosen(sorted({i.parameter for i in infos if i.parameter}), self.parameter, "parameter")
        if self.module is not None:
            raise nothing_chosen(sorted({i.module for i in infos if i.module}), self.module, "module")
        if self.line is not None:
            lines = sorted(
                {f"{i.place.site.file.rpartition('/')[2]}:{i.place.site.line}" for i in infos if i.place.site}
            )
            raise BackprobeError(f"no node was made at {self.line}; nodes were made at {', '.join(lines[:12])}")
        if self.seq is not None:
            seqs = [i.seq for i in infos if i.seq is not None]
            raise BackprobeError(
                f"no node has the sequence number {self.seq}; they are {min(seqs, default=0)} to {max(seqs, default=0)}"
            )
        raise nothing_chosen(sorted({i.name for i in infos}), self.node, "node type")

    def holds(self, stop: Stop) -> bool:
        """Whether the condition holds at `stop`. Raises what the condition raises."""
        if self._code is not None:
            with values.looking():
                return bool(eval(self._code, {"__builtins__": __builtins__}, Names(stop)))
        if callable(self.when):
            with values.looking():
                return bool(self.when(stop))
        return True


class Names(Mapping[str, Any]):
    """What a condition can use: worked out when it is read."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._ways: dict[str, Callable[[], Any]] = {
            "grads": lambda: stop.gradients,
            "norm": lambda: values.norm(stop.gradients),
            "nonfinite": lambda: values.nonfinite(stop.gradients),
            "shape": lambda: next((shape_of(g) for g in stop.gradients if g is not None), None),
            "node": lambda: stop.node.name,
            "module": lambda: stop.node.module,
            "parameter": lambda: stop.node.parameter,
            "seq": lambda: stop.node.seq,
            "phase": lambda: stop.phase,
            "stop": lambda: stop,
            "torch": lambda: torch,
        }

    def __getitem__(self, name: str) -> Any:
        return self._ways[name]()

    def __iter__(self) -> Any:
        return iter(self._ways)

    def __len__(self) -> int:
        return len(self._ways)


def _compiled(when: str) -> CodeType:
    try:
        return compile(when.strip(), "<condition>", "eval")
    except SyntaxError as error:
        raise BackprobeError(f"the condition {when!r} is not a Python expression: {error.msg}") from None


def _file_and_line(line: str | None) -> tuple[str, int]:
    if line is None:
        return "", 0
    match = _PLACE.match(line)
    if match is None:
        raise BackprobeError(f"line is {line!r}; give FILE:LINE, such as 'model.py:41'")
    return match["file"].replace("\\", "/"), int(match["line"])


def _same_file(path: str, wanted: str) -> bool:
    path = path.replace("\\", "/")
    return path == wanted or path.endswith("/" + wanted.lstrip("./"))


def breakpoint_from(place: str | None, options: Mapping[str, Any]) -> Breakpoint:
    """A breakpoint from the text form, from keyword arguments, or from a text with a count or a phase beside it.

    :raises BackprobeError: it is none, or the two say the same thing.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if place is None:
        return Breakpoint(**given)
    found = parsed(place)
    twice = (set(found) & set(given)) | ({"node", "module", "on", "parameter", "line", "seq"} & set(given))
    if twice:
        raise BackprobeError(f"{place!r} is a place already; leave out {', '.join(sorted(twice))}=")
    return Breakpoint(**found, **given)


def parsed(text: str) -> dict[str, Any]:
    """Keyword arguments from a line such as ``module encoder.* enter if norm > 10``.

    :raises BackprobeError: the line is none of the forms; it names them.
    """
    text = text.strip()
    head, found, condition = _split(text)
    if not found and _CONDITION.search(head) and not head.startswith(("module ", "param ", "#")):
        head, condition = "", head
    options: dict[str, Any] = {}
    if condition:
        options["when"] = condition
    words = head.split()
    if words and words[-1] in PHASES:
        options["phase"] = words.pop()
    first = words[0] if words else ""
    if first in ("module", "mod") and len(words) in (2, 3):
        options["module"] = words[1]
        if len(words) == 3:
            options["on"] = words[2]
    elif first in ("param", "parameter") and len(words) == 2:
        options["parameter"] = words[1]
    elif len(words) == 1 and first.startswith("#") and first[1:].isdigit():
        options["seq"] = int(first[1:])
    elif words and _PLACE.match(" ".join(words)):
        options["line"] = " ".join(words)
    elif len(words) == 1 and _TYPE.match(first) and first not in _WORDS:
        # A node type has no dot in its name; a module's path has.
        options["module" if "." in first and "::" not in first else "node"] = first
    elif words or not condition:
        raise BackprobeError(f"{text!r} is no breakpoint; give {FORMS}")
    return options


def _split(text: str) -> tuple[str, bool, str]:
    """Place and condition around ``if`` or a comma."""
    if text.startswith("if "):
        return "", True, text[3:].strip()
    for mark in (" if ", ","):
        head, found, tail = text.partition(mark)
        if found:
            return head.strip(), True, tail.strip().removeprefix("if ")
    return text, False, ""
