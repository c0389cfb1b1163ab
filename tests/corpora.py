"""Load the scripts of the corpus, which ``corpus/README.md`` describes: each with its ``EXPECT``."""

from __future__ import annotations

import ast
import functools
import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CORPUS_FOLDER = Path(__file__).resolve().parents[1] / "corpus"
SNIPPETS_FOLDER = CORPUS_FOLDER / "snippets"
STORED_RUNS_FOLDER = CORPUS_FOLDER / "runs"

#: Sets that a test of their own runs, with ranks or with a backend of ``torch.compile``. All others are for
#: ``test_reports.py``.
SETS_WITH_OWN_TEST = ("compiled", "ranks")

#: Kind in an `EXPECT` without "line" -> kind of the finding, names of the marker of its main line, role of its main
#: site.
MAIN_SITES = {
    "nonfinite-backward": ("nonfinite-backward", "source_marker", "cause"),
    "nonfinite-forward-poisons-backward": ("nonfinite-forward", "source_marker", "cause"),
    "inplace": ("inplace", "mutating_marker", "mutated"),
    "silent-mutation": ("silent-mutation", "mutating_marker", "mutated"),
    "second-backward": ("second-backward", "bridge_marker", "reused"),
    "none-grad": ("none-grad", "cut_marker", "cut"),
    "zero-grad": ("zero-grad", "cut_marker", "cut"),
    "grad-mode-disabled": ("grad-mode-disabled", "cut_marker", "cut"),
    "unregistered-parameter": ("unregistered-parameter", "cut_marker", "cut"),
    "parameter-not-in-optimizer": ("parameter-not-in-optimizer", "optimizer_marker", "optimizer"),
    "exploding-gradient": ("exploding-gradient", "source_marker", "cause"),
    "vanishing-gradient": ("vanishing-gradient", "source_marker", "cause"),
    "graph-retained": ("graph-retained", "holding_marker", "held"),
    "reference-cycle": ("reference-cycle", "holding_marker", "held"),
    "wrong-backward": ("wrong-backward", "apply_marker", "applied"),
    "wrong-double-backward": ("wrong-double-backward", "apply_marker", "applied"),
    "wrong-backward-shape": ("wrong-backward-shape", "apply_marker", "applied"),
    "backward-error": ("backward-error", "source_marker|apply_marker", "cause"),
    "nonleaf-grad": ("nonleaf-grad", "cut_marker", "cut"),
    "hook-inplace-conflict": ("hook-inplace-conflict", "hook_marker", "hook"),
    "checkpoint-side-effect": ("checkpoint-side-effect", "region_marker", "region"),
    "hook-never-fires": ("hook-never-fires", "hook_marker", "hook"),
    "checkpoint-mismatch": ("checkpoint-mismatch", "culprit_marker", "cause"),
    "rank-desync": ("rank-desync", "waiting_marker", "waiting"),
    "ddp-ready-twice": ("ddp-ready-twice", "failing_marker", "failed"),
    "first-divergence": ("first-divergence", "", "cause"),
    "gradient-not-cleared": ("gradient-not-cleared", "stepping_marker", "stepped"),
    "gradient-not-used": ("gradient-not-used", "clearing_marker", "cleared"),
}


@dataclass(frozen=True)
class MainSite:
    """The main site of an expected finding: its kind, its role, and the lines of which it names one.

    :ivar role: "" for a site in any role.
    :ivar lines: None if `EXPECT` marks no line.
    """

    kind: str | list[str]
    role: str
    lines: set[int] | None


@dataclass(frozen=True)
class Script:
    """A script of the corpus with its `EXPECT`."""

    path: Path
    text: str
    expect: dict[str, Any]

    @property
    def is_healthy(self) -> bool:
        return self.expect["kind"] in (None, "none")

    def lines_of(self, marker: str) -> set[int]:
        return lines_of(self.text, marker)

    def main_site(self) -> MainSite:
        """Return the main site of the finding that a script with a mistake is to have first."""
        if "line" in self.expect:
            role, marker = self.expect["line"]
            return MainSite(self.expect["kind"], role, self.lines_of(marker))
        if self.expect["set"] in SETS_WITH_OWN_TEST:
            return MainSite(self.expect["kind"], "", None)
        kind, names, role = MAIN_SITES[self.expect["kind"]]
        marker = next((self.expect[name] for name in names.split("|") if name in self.expect), None)
        return MainSite(kind, role, None if marker is None else self.lines_of(marker))


@functools.cache
def load_corpus() -> dict[str, Script]:
    """Return all scripts that have an `EXPECT`, by name. No two have the same name."""
    scripts: dict[str, Script] = {}
    for path in sorted(CORPUS_FOLDER.glob("*/*.py")):
        if path.parent != SNIPPETS_FOLDER:
            assert path.stem not in scripts, f"{path} and {scripts[path.stem].path} have one name"
            text = path.read_text(encoding="utf-8")
            scripts[path.stem] = Script(path, text, expectation(text))
    return scripts


def load_set(name: str, *, healthy: bool | None = None) -> dict[str, Script]:
    """Return the scripts of one set, by name.

    :param healthy: only those without a mistake, or only those with one.
    """
    return {
        key: script
        for key, script in load_corpus().items()
        if script.expect["set"] == name and healthy in (None, script.is_healthy)
    }


def load_snippets() -> dict[str, tuple[str, str, str | None, str | None]]:
    """Return the snippets by name, each as script, kind, a part of the main line or None, and module."""
    tables = [runpy.run_path(str(path))["BROKEN"] for path in sorted(SNIPPETS_FOLDER.glob("*.py"))]
    snippets = {name: snippet for table in tables for name, snippet in table.items()}
    assert len(snippets) == sum(map(len, tables)), "two snippets have one name"
    return snippets


def selected_names(request: pytest.FixtureRequest, test: str = "") -> set[str]:
    """Return the names of the scripts that the selected tests need: of all tests, or of the one called `test`."""
    return {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and "name" in getattr(getattr(item, "callspec", None), "params", ())
        and test in ("", item.originalname)
    }


def expectation(text: str) -> dict[str, Any]:
    """Return the `EXPECT` of a script."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "EXPECT":
            return ast.literal_eval(node.value)
    raise AssertionError("no EXPECT")


def lines_of(text: str, marker: str) -> set[int]:
    """Return the lines of the statements that carry the comment `marker`."""
    marked = {n for n, line in enumerate(text.splitlines(), 1) if re.search(rf"#.*\b{marker}\b", line)}
    lines = set(marked)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            span = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if span & marked:
                lines |= span
    assert lines, f"no line is marked {marker}"
    return lines
