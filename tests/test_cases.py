"""Scripts as people write them, each with one mistake of a kind that is often reported, or with none (``cases/``).

``EXPECT`` says the kind of the first finding, the role of a site and the comment that marks its line, the module.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

CASES = {path.stem: path for path in sorted((Path(__file__).parent / "cases").glob("*.py"))}


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


def watch(folder: Path, path: Path) -> tuple[list[dict[str, Any]], str]:
    folder.mkdir()
    ask = expectation(path.read_text()).get("ask")
    command = [sys.executable, "-m", "backprobe", "run", "--no-keep", *(["--ask", ask] if ask else [])]
    command += ["--findings", str(folder / "findings.json"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=200)
    assert (folder / "findings.json").exists(), done.stderr
    return json.loads((folder / "findings.json").read_text())["findings"], done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name -> what was found. Two at a time: most of the time goes into importing torch."""
    folder = tmp_path_factory.mktemp("cases")
    with ThreadPoolExecutor(2) as pool:
        found: dict[str, Future] = {name: pool.submit(watch, folder / name, path) for name, path in CASES.items()}
        yield found
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_the_first_finding_is_the_mistake(name: str, runs) -> None:
    text = CASES[name].read_text()
    expect = expectation(text)
    findings, report = runs[name].result()
    assert "internal error" not in report
    if expect["kind"] is None:
        assert [f["title"] for f in findings if f["severity"] != "info"] == []
        return
    assert findings, report
    first = findings[0]
    wanted = [(expect["kind"], *reversed(expect["line"]))] if "line" in expect else []
    if not wanted:
        assert first["kind"] == expect["kind"], report
        assert set(expect.get("parameters", ())) <= set(first["parameters"])
    elif not any(
        first["kind"] == kind and any(s["role"] == role and s["line"] in lines_of(text, marker) for s in first["sites"])
        for kind, marker, role in [*wanted, *expect.get("or", ())]
    ):
        pytest.fail(f"expected {expect}\n{report}")
    if "module" in expect:
        assert first["module"] == expect["module"], report
