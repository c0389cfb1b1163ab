"""The source text stored with a run, so that readers of the run need not open the files that it names.

Note [Source excerpts]: Of a file, a run stores the functions in which a line was recorded, and some lines around each
recorded line outside functions. Each other line is stored as ``NOT_KEPT``, so that line numbers stay right.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from inspect import CO_OPTIMIZED
from itertools import islice
from types import CodeType

from ..basics.privacy import masked_source
from ..records import Site
from ..records.places import NOT_KEPT, lasting, sites_in
from .frames import Frames

#: Number of lines before and after a recorded line outside functions.
CONTEXT_LINES = 4
#: Number of lines from which a function counts as long, and of lines before and after a recorded line in one.
MIN_LONG_FUNCTION_LINES, LONG_FUNCTION_CONTEXT_LINES = 300, 15
#: Maximum number of characters of all files together.
MAX_CHARACTERS = 1 << 20
#: Maximum number of code objects that are searched for functions: some scripts make new ones all the time.
MAX_CODES = 10_000


def sources(frames: Frames, seen: object = (), mode: str = "lines", most: int = MAX_CHARACTERS) -> dict[str, str]:
    """Return the text of each file that contains a recorded line, the user's files first (Note [Source excerpts]).

    :param seen: records; the lines that they name count as recorded too.
    :param mode: one of ``SOURCE_MODES``.
    :param most: maximum number of characters of all files together; files that do not fit are left out.
    """
    if mode == "none":
        return {}
    functions: dict[str, set[tuple[int, int]]] = {}
    for code in islice(frames.codes(), MAX_CODES):
        functions.setdefault(code.co_filename, set()).update(_functions(code))
    recorded: dict[str, set[Site]] = {}
    for site in (*frames.sites(), *sites_in(seen)):
        recorded.setdefault(site.file, set()).add(site)
    found: dict[str, str] = {}
    for file in sorted(recorded, key=lambda name: not frames.is_users_file(name)):
        text = linecache.getlines(file)
        if not all(_has(text, site) for site in recorded[file]):  # the file has changed since
            continue
        if mode != "full":
            text = _excerpt(text, {site.line for site in recorded[file]}, functions.get(file, ()))
        size = sum(map(len, text))
        if text and size <= most:
            most -= size
            found[lasting(file)] = masked_source("".join(text))
    return found


def _has(text: list[str], site: Site) -> bool:
    """Return whether the file still has the recorded text at the line of `site`."""
    return not site.text or (0 < site.line <= len(text) and text[site.line - 1].strip() == site.text)


def _excerpt(text: list[str], recorded: Iterable[int], functions: Iterable[tuple[int, int]]) -> list[str]:
    """Return `text` with ``NOT_KEPT`` for each line far from all recorded lines, cut off after the last one to keep."""
    kept: set[int] = set()
    for line in recorded:
        around = [(last - first, first, last) for first, last in functions if first <= line <= last]
        size, first, last = min(around, default=(0, line - CONTEXT_LINES, line + CONTEXT_LINES))
        if size >= MIN_LONG_FUNCTION_LINES:
            first, last = max(first, line - LONG_FUNCTION_CONTEXT_LINES), min(last, line + LONG_FUNCTION_CONTEXT_LINES)
        kept.update(range(first, last + 1))
    last = max((n for n in kept if n <= len(text)), default=0)
    return [line if n in kept else f"{NOT_KEPT}\n" for n, line in enumerate(text[:last], 1)]


def _functions(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield first and last line of the function that `code` is, and of all functions nested in it."""
    stack = [code]
    while stack:
        one = stack.pop()
        stack += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
        if one.co_flags & CO_OPTIMIZED:
            yield one.co_firstlineno, _last_line(one)


def _last_line(code: CodeType) -> int:
    """Return the last line of code, including functions nested in it."""
    last, stack = code.co_firstlineno, [code]
    while stack:
        one = stack.pop()
        stack += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
        last = max([last, *(line for _, _, line in one.co_lines() if line is not None)])
    return last
