"""The roles of lines: each that a rule gives has a meaning, and JSON and the page say it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import backprobe.findings
from backprobe.records import Finding, FindingSite, Site
from backprobe.records.roles import ROLE_MEANINGS, meaning_of

FOLDER = Path(backprobe.findings.__file__).parent


def texts_of(node: ast.expr) -> Iterator[str]:
    """Yield the strings that an expression may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body)
        yield from texts_of(node.orelse)


def roles_in(tree: ast.AST) -> Iterator[str]:
    """Yield the roles given to ``FindingSite``, and in the pairs given to ``sites_of``."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id == "FindingSite":
            yield from texts_of(call.args[0])
        elif call.func.id == "sites_of":
            pairs = [node for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Tuple)]
            for pair in pairs:
                yield from texts_of(pair.elts[0]) if len(pair.elts) == 2 else ()


def test_every_role_has_a_meaning() -> None:
    files = [path for path in FOLDER.rglob("*.py") if not path.name.startswith("test_")]
    used = {role for path in files for role in roles_in(ast.parse(path.read_text()))}
    assert len(used) > 30  # the search finds them
    assert used <= set(ROLE_MEANINGS)


def test_json_says_what_a_line_has_to_do_with_the_finding() -> None:
    site = Site("train.py", 3, "main", "x = y")
    sites = tuple(FindingSite(role, site) for role in ("cause", "failed", "of a plugin"))
    written = Finding("saved-memory", "info", "a title", "certain", sites=sites).as_dict()["sites"]
    assert [one["meaning"] for one in written] == [
        "the line that keeps these bytes for backward",
        "the backward call in which it showed",
        "",
    ]
    assert meaning_of("cause", "none-grad") == ROLE_MEANINGS["cause"]
