"""Selects named things by glob, pattern or predicate: the same forms everywhere."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase, translate
from functools import cache
from typing import Any

from .errors import BackprobeError

#: A glob on the whole name (``*`` crosses dots, ``{*}`` does not), a compiled pattern (searched for), a predicate of
#: name and thing, or any number of these. None chooses everything.
Selection = str | re.Pattern[str] | Callable[[str, Any], bool] | Iterable[Any] | None


def selector(select: Selection) -> Callable[[str, object], bool]:
    """Return a predicate of name and object for any form of selection.

    Raises:
        BackprobeError: if ``select`` is none of the forms.
    """
    if select is None:
        return lambda name, thing: True
    if isinstance(select, str):
        glob = select
        if "{*}" in glob:
            whole = _segments(glob)
            return lambda name, thing: whole.match(name) is not None
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


@cache
def _segments(glob: str) -> re.Pattern[str]:
    """Compile a glob in which ``{*}`` stands for any text without a dot."""
    before, after = translate("x").split("x")
    parts = (translate(part).removeprefix(before).removesuffix(after) for part in glob.split("{*}"))
    return re.compile(before + "[^.]*".join(parts) + after)


class Choice:
    """A selection among known names, which records the parts that matched none of them.

    Call it with each name (and object) to ask whether it is selected; then call ``check``.
    """

    def __init__(self, select: Selection) -> None:
        parts = list(_flat(select))
        self._select = parts if isinstance(select, Iterable) and not isinstance(select, str) else select
        self._parts = [(part, selector(part)) for part in parts]
        self._idle = list(range(len(self._parts)))

    def __call__(self, name: str, thing: object = None) -> bool:
        if not self._idle:
            return any(fits(name, thing) for _, fits in self._parts)
        fitting = [i for i, (_, fits) in enumerate(self._parts) if fits(name, thing)]
        self._idle = [i for i in self._idle if i not in fitting]
        return bool(fitting)

    def check(self, names: Iterable[str], what: str) -> None:
        """Raise an error if a part of the selection matched no name. Call it after all names were tested.

        Raises:
            BackprobeError: if a part fits none of `names`; names that look alike are given.
        """
        if self._idle or not self._parts:
            idle = [self._parts[i][0] for i in self._idle]
            whole = f" (of {described(self._select)})" if 0 < len(idle) < len(self._parts) else ""
            raise nothing_chosen(names, idle[0] if len(idle) == 1 else idle, what, whole)


def _flat(select: Selection) -> Iterator[Selection]:
    """Yield the parts of a selection, nested lists flattened."""
    if isinstance(select, Iterable) and not isinstance(select, str):
        for part in select:
            yield from _flat(part)
    else:
        yield select


def described(select: Selection) -> str:
    """Format a selection as a user would write it."""
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
    """Return the names that ``select`` matches, in their order, if there are only names to select by.

    Raises:
        BackprobeError: if there is none, or none for a part of a list; names that look alike are given.
    """
    names = list(names)
    wanted = Choice(select)
    found = [name for name in names if wanted(name)]
    wanted.check(names, what)
    return found


def nothing_chosen(names: Iterable[str], select: Selection, what: str, whole: str = "") -> BackprobeError:
    """Return the error for a selection that fits no name; it lists similar names.

    :param what: what the names are, such as "module"; ``whole``: a note on the whole selection.
    """
    names = list(names)
    parts = select if isinstance(select, list) else [select]
    shown = dict.fromkeys(n for part in parts if isinstance(part, str) for n in near(part, names)) or names[:3]
    hint = f"; names are like {quoted([*shown][:5])}" if names else "; there is none at all"
    return BackprobeError(f"no {what} fits {described(select)}{whole}{hint}")


def near(name: object, names: Iterable[str], most: int = 3) -> list[str]:
    """Return those of `names` that resemble `name`, as a whole or in their last part; the first ones if none does."""
    name, names = str(name), [str(one) for one in names]
    tails: dict[str, str] = {}
    for one in names:
        tails.setdefault(one.rpartition(".")[2], one)
    like = difflib.get_close_matches(name, names, most, 0.6)
    like += [tails[tail] for tail in difflib.get_close_matches(name.rpartition(".")[2], tails, most, 0.75)]
    found = list(dict.fromkeys(like))[:most]
    return found or difflib.get_close_matches(name, names, most, 0.4) or names[:most]


def quoted(names: Iterable[str]) -> str:
    """Return names as one text, each in quotes."""
    return ", ".join(map(repr, names))
