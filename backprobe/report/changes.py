"""What has to be sent of a document to somebody who has an earlier one. ``page/src/data/merge.ts`` puts it in.

A change is a list, and begins with what is to be done:

    ["set", value]                 it is another value now
    ["in", {key: change, ...}]     an object with the same keys: those whose values changed
    ["list", [part, ...]]          a list made anew; a part is [i, j], the old items from i to j (not included),
                                   [i, change], a changed one of them, or [value], a new one
    ["more", count, column]        a column: so many of the old numbers, and then these
"""

from __future__ import annotations

import base64
from array import array
from typing import Any

from .columns import CODES, Column, text

Change = list[Any]


def change(old: Any, new: Any) -> Change | None:
    """What makes `new`, a part of a document, of `old`; ``None`` where they are the same."""
    kind = type(new)
    if type(old) is kind is Column and old["t"] == new["t"]:
        return _column(old, new)
    if type(old) is kind is dict and list(old) == list(new):
        found = {key: part for key in new if (part := change(old[key], new[key])) is not None}
        return ["in", found] if found else None
    if type(old) is kind is list:
        return _list(old, new)
    return None if text(old) == text(new) else ["set", new]


def _column(old: Column, new: Column) -> Change | None:
    if old == new:
        return None
    was, now = base64.b64decode(old["b"]), base64.b64decode(new["b"])
    size = array(CODES[new["t"]]).itemsize
    low, high = 0, min(len(was), len(now))
    while low < high:  # the first `low` bytes are the same, and not all of the first `high` + 1
        middle = (low + high + 1) // 2
        if was[low:middle] == now[low:middle]:
            low = middle
        else:
            high = middle - 1
    kept = low // size
    return ["more", kept, Column(t=new["t"], b=base64.b64encode(now[kept * size :]).decode())]


def _list(old: list[Any], new: list[Any]) -> Change | None:
    was, now = [text(one) for one in old], [text(one) for one in new]
    if was == now:
        return None
    places: dict[str, int] = {}
    for i, one in enumerate(was):
        places.setdefault(one, i)
    stays = set(now)
    parts: list[list[Any]] = []
    end = -1  # of the stretch of old items that the last part is
    for i, one in enumerate(now):
        if 0 <= end < len(was) and was[end] == one:
            end += 1
            parts[-1][1] = end
        elif one in places:
            end = places[one] + 1
            parts.append([end - 1, end])
        else:
            end = -1
            known = i < len(old) and was[i] not in stays and type(old[i]) is type(new[i]) is dict
            parts.append([i, change(old[i], new[i])] if known else [new[i]])
    return ["list", parts]
