"""Tables of the bytes that graphs save for backward: by module, line, op and dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ...records import SavedBytes, Site

#: The most rows of a table in the evidence.
MAX_ROWS = 30
#: What the bytes are listed by.
KEYS: dict[str, Callable[[SavedBytes], str]] = {
    "module": lambda r: "(unknown)" if r.module is None else r.module or "(no module)",
    "line": lambda r: str(r.site) if r.site else "(unknown)",
    "op": lambda r: r.op,
    "dtype": lambda r: r.dtype,
}


def bytes_by(key: Callable[[SavedBytes], str], rows: Iterable[SavedBytes]) -> dict[str, int]:
    """Return the sum of the bytes of `rows` for each value of `key`, the largest first."""
    found: Counter[str] = Counter()
    for row in rows:
        found[key(row)] += row.bytes
    return dict(found.most_common())


def table(found: dict[str, int]) -> dict[str, int]:
    """Return the first ``MAX_ROWS`` rows and, under ``(rest)``, the sum of the others, so that the total stays the
    same.
    """
    first = dict(list(found.items())[:MAX_ROWS])
    rest = sum(found.values()) - sum(first.values())
    return {**first, "(rest)": rest} if rest else first


def lines_by_bytes(rows: Iterable[SavedBytes]) -> list[Site]:
    """Return the lines, in descending order of the bytes that they save."""
    found: dict[Site, int] = {}
    for row in rows:
        if row.site is not None:
            found[row.site] = found.get(row.site, 0) + row.bytes
    return sorted(found, key=lambda site: -found[site])
