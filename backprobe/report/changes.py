"""The difference between two versions of a document, sent to a page that has the earlier one.
``page/src/data/merge.ts`` applies it.

A change is a list, and begins with the operation:

    ["set", value]                 replace by this value
    ["in", {key: change, ...}]     an object with the same keys: changes of some values
    ["list", [part, ...]]          a new list; a part is [i, j], the old items from i to j (not included),
                                   [i, change], a changed one of them, or [value], a new one
    ["more", count, column]        a column: the first `count` old numbers, followed by these
"""

from __future__ import annotations

import base64
from array import array
from typing import Any

from .columns import CODES, Column, text

Change = list[Any]


def change(old: Any, new: Any) -> Change | None:
    """Return the change that turns `old`, a part of a document, into `new`; ``None`` if they are equal."""
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
    """Return the change of a column: how many of its first numbers stay, and the numbers after them;
    ``None`` if equal.
    """
    if old == new:
        return None
    was, now = base64.b64decode(old["b"]), base64.b64decode(new["b"])
    size = array(CODES[new["t"]]).itemsize
    low, high = 0, min(len(was), len(now))
    while low < high:  # invariant: the first `low` bytes are equal, the first `high` + 1 are not
        middle = (low + high + 1) // 2
        if was[low:middle] == now[low:middle]:
            low = middle
        else:
            high = middle - 1
    kept = low // size
    return ["more", kept, Column(t=new["t"], b=base64.b64encode(now[kept * size :]).decode())]


def _list(old: list[Any], new: list[Any]) -> Change | None:
    """Return the change of a list: stretches that stay, changed items and new ones; ``None`` if the lists are equal."""
    was, now = [text(one) for one in old], [text(one) for one in new]
    if was == now:
        return None
    places: dict[str, int] = {}
    for i, one in enumerate(was):
        places.setdefault(one, i)
    stays = set(now)
    parts: list[list[Any]] = []
    end = -1  # the end, among the old items, of the last part
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
