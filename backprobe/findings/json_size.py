"""What was found as JSON, short enough for a reader with bounded patience: a program, or a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: Bytes of JSON, unless all is asked for.
MOST = 32_000
#: What is kept of lists and texts, at first, and where that is not enough.
_ITEMS, _LETTERS = (24, 8, 3), (2000, 500, 160)


def as_json(document: Mapping[str, Any], most: int | None = MOST) -> str:
    """`document`, what ``Trace.as_dict`` gives, as JSON of at most `most` bytes; ``None``: all of it.

    First long lists and texts are cut, the longest most; then the last findings are left out, which matter least, but
    for the first. ``left_out`` says so.
    """
    text = _dumped(document)
    if most is None or len(text) <= most:
        return text
    short: dict[str, Any] = dict(document)
    for items, letters in zip(_ITEMS, _LETTERS, strict=True):
        short = {name: _cut(value, items, letters) for name, value in document.items()}
        short["findings"] = [_cut(finding, items, letters) for finding in document["findings"]]
        short["left_out"] = [f"lists have their first {items} entries, texts their first {letters} characters"]
        text = _dumped(short)
        if len(text) <= most:
            return text
    total = len(short["findings"])
    while len(text) > most and len(short["findings"]) > 1:
        short["findings"] = short["findings"][: max(1, len(short["findings"]) * 3 // 4)]
        gone = f"{total - len(short['findings'])} of {total} findings, the last ones"
        text = _dumped({**short, "left_out": [*short["left_out"], gone]})
    return text


def _dumped(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, default=str)


def _cut(value: Any, items: int, letters: int) -> Any:
    """`value` without the ends of its lists and texts."""
    if isinstance(value, str):
        return value if len(value) <= letters else f"{value[:letters]}... ({len(value):,} characters)"
    if isinstance(value, Mapping):
        names = list(value)[: 8 * items]  # more than any record has fields
        return {name: _cut(value[name], items, letters) for name in names}
    if isinstance(value, list | tuple):
        return [_cut(one, items, letters) for one in value[:items]]
    return value
