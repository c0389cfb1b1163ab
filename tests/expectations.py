"""Reads a script of the corpus: its ``EXPECT``, and the lines that carry a marker."""

from __future__ import annotations

import ast
import re
from typing import Any


def expectation(text: str) -> dict[str, Any]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "EXPECT":
            return ast.literal_eval(node.value)
    raise AssertionError("no EXPECT")


def lines_of(text: str, marker: str) -> set[int]:
    """The lines of the statements that carry the comment `marker`."""
    marked = {n for n, line in enumerate(text.splitlines(), 1) if re.search(rf"#.*\b{marker}\b", line)}
    lines = set(marked)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            span = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if span & marked:
                lines |= span
    assert lines, f"no line is marked {marker}"
    return lines
