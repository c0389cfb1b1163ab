"""Findings as JSON with bounded size, for a reader with a limited context: a program, or a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: The most bytes of JSON, unless the caller asks for all.
MAX_JSON_BYTES = 32_000
#: The most list items and characters of texts: at first, and if the result is still too long.
_MAX_ITEMS, _MAX_LETTERS = (24, 8, 3), (2000, 500, 160)


def as_json(document: Mapping[str, Any], most: int | None = MAX_JSON_BYTES) -> str:
    """Return `document` (from ``Trace.as_dict``) as JSON of at most `most` bytes; ``None``: without limit.

    Lists and texts are cut first, more and more; then the last findings, which matter least, are left out, but never
    the first. ``left_out`` states what is missing.
    """
    text = _dumped(document)
    if most is None or len(text) <= most:
        return text
    short: dict[str, Any] = dict(document)
    for items, letters in zip(_MAX_ITEMS, _MAX_LETTERS, strict=True):
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


def _dumped(document: Mapping[str, object]) -> str:
    """Return `document` as indented JSON; objects that JSON does not know become their text."""
    return json.dumps(document, indent=1, default=str)


def _cut(value: object, items: int, letters: int) -> Any:
    """Return `value` with lists cut to `items` entries and texts to `letters` characters, in all levels."""
    if isinstance(value, str):
        return value if len(value) <= letters else f"{value[:letters]}... ({len(value):,} characters)"
    if isinstance(value, Mapping):
        names = list(value)[: 8 * items]  # more than any record has fields
        return {name: _cut(value[name], items, letters) for name in names}
    if isinstance(value, list | tuple):
        return [_cut(one, items, letters) for one in value[:items]]
    return value
