"""Which named things a person means: the same forms wherever something is chosen."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from .errors import BackprobeError

#: A glob on the whole name (``*`` crosses dots), a compiled pattern (searched for), a predicate of name and thing, or
#: any number of these. None chooses everything.
Selection = str | re.Pattern[str] | Callable[[str, Any], bool] | Iterable[Any] | None


def selector(select: Selection) -> Callable[[str, Any], bool]:
    """A predicate of name and thing for any form of selection.

    Raises:
        BackprobeError: if ``select`` is none of the forms.
    """
    if select is None:
        return lambda name, thing: True
    if isinstance(select, str):
        glob = select
        return lambda name, thing: fnmatchcase(name, glob)
    if isinstance(select, re.Pattern):
        pattern = select
        return lambda name, thing: pattern.search(name) is not None
    if callable(select):
        return select
    if isinstance(select, Iterable):
        parts = [selector(part) for part in select]
        return lambda name, thing: any(part(name, thing) for part in parts)
    raise BackprobeError(
        f"cannot select by {type(select).__name__}: give a glob ('encoder.layer.*'), a compiled regular expression, "
        "a function of name and thing, or a list of these"
    )


def described(select: Selection) -> str:
    """A selection as a person would write it."""
    if select is None:
        return "everything"
    if isinstance(select, str):
        return repr(select)
    if isinstance(select, re.Pattern):
        return f"re.compile({select.pattern!r})"
    if callable(select):
        return getattr(select, "__name__", repr(select))
    return "[" + ", ".join(described(part) for part in select) + "]"


def chosen(names: Iterable[str], select: Selection, what: str) -> list[str]:
    """The names that ``select`` means, in their order, where there is nothing but names to go by.

    Raises:
        BackprobeError: if there is none; names that look alike are given.
    """
    names = list(names)
    wanted = selector(select)
    found = [name for name in names if wanted(name, None)]
    if not found:
        raise nothing_chosen(names, select, what)
    return found


def nothing_chosen(names: Iterable[str], select: Selection, what: str) -> BackprobeError:
    """The error for a selection that fits no name, with names that look like it."""
    names = list(names)
    like = difflib.get_close_matches(select, names, n=3, cutoff=0.4) if isinstance(select, str) else []
    shown = like or names[:3]
    hint = f"; names are like {', '.join(map(repr, shown))}" if shown else "; there is none at all"
    return BackprobeError(f"no {what} fits {described(select)}{hint}")
