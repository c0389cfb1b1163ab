"""Creates breakpoints from keyword arguments or a line of text."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, TypedDict

from ..basics.errors import BackprobeError
from ..basics.select import Selection
from .breakpoints import FILE_AND_LINE, PHASES, Breakpoint

if TYPE_CHECKING:
    from .conditions import Condition

_TYPE = re.compile(r"^[\w*?\[\]:!.-]+$")
#: Text that occurs only in conditions.
_CONDITION = re.compile(r"[<>=()]|\b(nonfinite|norm|and|or|not)\b")
#: Words that begin a form and are no node type.
_WORDS = frozenset({"module", "mod", "param", "parameter"})
FORMS = (
    "a node type (AddmmBackward0, *Norm*), a module's path ('module PATH [enter|leave]', or one with a dot in it), "
    "'param NAME', 'file.py:41', '#NUMBER' (sequence number), 'norm > 10' or 'nonfinite'; a condition may follow any "
    "of the others after 'if'"
)


class BreakpointOptions(TypedDict, total=False):
    """Options that say where and when to stop; ``Debugger.break_at`` explains each. ``None`` means not given."""

    node: Selection
    module: Selection
    on: str | None
    parameter: Selection
    line: str | None
    seq: int | None
    when: Condition
    phase: str | None
    count: int | None
    temporary: bool | None


def breakpoint_from(place: str | None, options: BreakpointOptions) -> Breakpoint:
    """Create a breakpoint from the text form, keyword arguments, or a text with keyword arguments for count or phase.

    :raises BackprobeError: it is invalid, or both give the same option.
    :raises TypeError: there is no such option.
    """
    known = BreakpointOptions.__annotations__
    for name in options.keys() - known.keys():
        near = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise TypeError(f"a breakpoint has no argument {name!r}; {meant}it has {', '.join(known)}")
    given = {name: value for name, value in options.items() if value is not None}
    if place is None:
        return Breakpoint(given)
    found = parsed(place)
    twice = (set(found) & set(given)) | ({"node", "module", "on", "parameter", "line", "seq"} & set(given))
    if twice:
        raise BackprobeError(f"{place!r} is a place already; leave out {', '.join(sorted(twice))}=")
    return Breakpoint({**found, **given})


def parsed(text: str) -> BreakpointOptions:
    """Parse a line such as ``module encoder.* enter if norm > 10`` into keyword arguments.

    :raises BackprobeError: the line has none of the forms; the message lists them.
    """
    text = text.strip()
    head, found, condition = _split(text)
    if not found and _CONDITION.search(head) and not head.startswith(("module ", "param ", "#")):
        head, condition = "", head
    options: BreakpointOptions = {}
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
    elif words and FILE_AND_LINE.match(" ".join(words)):
        options["line"] = " ".join(words)
    elif len(words) == 1 and _TYPE.match(first) and first not in _WORDS:
        # A node type has no dot in its name; a module's path has.
        options["module" if "." in first and "::" not in first else "node"] = first
    elif words or not condition:
        raise BackprobeError(f"{text!r} is no breakpoint; give {FORMS}")
    return options


def _split(text: str) -> tuple[str, bool, str]:
    """Split a breakpoint's text at ``if`` or a comma.
    :returns: the place, whether a condition follows, and the condition.
    """
    if text.startswith("if "):
        return "", True, text[3:].strip()
    for mark in (" if ", ","):
        head, found, tail = text.partition(mark)
        if found:
            return head.strip(), True, tail.strip().removeprefix("if ")
    return text, False, ""
