"""The table of thresholds: complete, explained and used. No threshold stands in a rule or a tracker."""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import backprobe
from backprobe import thresholds

ROOT = Path(backprobe.__file__).parent
TABLE = ROOT / "thresholds.py"
TOOL = ROOT.parent / "tools" / "thresholds.py"
#: The folders whose modules decide what is reported.
FOLDERS = ("findings", "observe/trackers", "observe/ledger", "traces")
#: Words in the name of a limit, and what its comment then has to say. ``MAX``: a limit on work, memory or output.
#: ``INTERVAL``: the time or the steps between two looks. ``DEFAULT``: what an option is if it is not given.
LIMITS = {
    "MAX": r"\b(most|maximum|longest|deep|larger|more)\b",
    "INTERVAL": r"\b[Ii]nterval\b",
    "DEFAULT": r"\b[Dd]efault\b",
}
#: Numbers that are neither thresholds nor limits, and why.
OTHER_NUMBERS = {
    ("findings/rules.py", "*"): "ranks of kinds, which only order findings",
    ("findings/loss_form/rule.py", "_SIGMOID_OF_ONE"): "a value of mathematics",
    ("findings/loss_form/rule.py", "_LOG_TWO"): "a value of mathematics",
    ("observe/trackers/token_targets.py", "NEXT_TOKEN"): "the offset of a language model",
    ("observe/trackers/token_targets.py", "OFFSETS"): "the offsets that are tried",
    ("traces/gradients.py", "*"): "names of the places where gradients were measured",
    ("observe/trackers/equal_units.py", "BLOCKS"): "numbers of gates, a fact about modules of torch",
    ("observe/trackers/statistics.py", "MAX_BUDGET_SHARE"): "a limit on time, as a share of the overhead budget",
    ("observe/trackers/statistics.py", "MAX_ABSOLUTE_VALUE"): "the range of single precision",
}
MIN_WORDS_OF_A_COMMENT = 4


@dataclass(frozen=True)
class Constant:
    """A constant of a module, with the value and the ``#:`` comment above it."""

    file: str
    name: str
    value: object
    comment: str


def comment_above(lines: list[str], lineno: int) -> str:
    """Return the text of the ``#:`` lines directly above a line."""
    first = lineno - 1
    while first > 0 and lines[first - 1].startswith("#:"):
        first -= 1
    return " ".join(line.removeprefix("#:").strip() for line in lines[first : lineno - 1])


def is_number(value: object) -> bool:
    """Return whether a value is a number, or a non-empty collection of nothing but numbers."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list, set)):
        return bool(value) and all(map(is_number, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def evaluated(node: ast.expr) -> object:
    """Return the value of an expression of literals and ``math``; ``None`` if it needs other names."""
    try:
        return eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}, "math": math})
    except Exception:
        return None


def constants(text: str, file: str) -> Iterator[Constant]:
    """Yield the numeric constants that a module assigns at its top level."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        comment, value = comment_above(lines, node.lineno), evaluated(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value if isinstance(target, ast.Tuple) and isinstance(value, tuple) else [value] * len(names)
            for name, one in zip(names, values, strict=True):
                if isinstance(name, ast.Name) and is_number(one):
                    yield Constant(file, name.id, one, comment)


def wrong(one: Constant) -> str:
    """Return why a constant may not stand in its module, or an empty text."""
    if (one.file, "*") in OTHER_NUMBERS or (one.file, one.name) in OTHER_NUMBERS:
        return ""
    words = [word for word in LIMITS if word in one.name.strip("_").split("_")]
    if not words:
        return "a threshold belongs in backprobe/thresholds.py, and the name of a limit has one of " + ", ".join(LIMITS)
    values = one.value if isinstance(one.value, tuple) else (one.value,)
    if not all(isinstance(value, int) for value in values) and "INTERVAL" not in words:
        return "a limit is a whole number: this is a threshold"
    if not any(re.search(LIMITS[word], one.comment, re.IGNORECASE) for word in words):
        return "the comment of a limit says what it limits"
    return ""


def found_in(folder: str) -> Iterator[Constant]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not path.name.startswith("test_"):
            yield from constants(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_have_limits_only(folder: str) -> None:
    found = list(found_in(folder))
    assert found
    assert [f"{one.file}: {one.name}: {why}" for one in found if (why := wrong(one))] == []


def test_exceptions_are_needed() -> None:
    names = {(one.file, name) for folder in FOLDERS for one in found_in(folder) for name in (one.name, "*")}
    assert names.issuperset(OTHER_NUMBERS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#: Maximum number of nodes.\nMAX_NODES = 1 << 4\n", ""),
        ("#: Interval, in seconds, between two looks.\n_LOOK_INTERVAL_S = 0.5\n", ""),
        ("#: Maximum number of nodes.\nMIN_STEPS = 5\n", "thresholds.py"),
        ("#: Maximum number of nodes.\nMAX_NODES, FAR = 5, (1e-5, 2)\n", "thresholds.py"),
        ("#: Maximum number of nodes.\nBOUNDS = {'a': (1, math.inf)}\n", "thresholds.py"),
        ("#: Maximum share.\nMAX_SHARE = 1 / 2\n", "whole number"),
        ("#: Nodes.\nMAX_NODES: int = 5\n", "says what it limits"),
    ],
)
def test_each_mistake_is_found(text: str, why: str) -> None:
    said = [wrong(one) for one in constants(text, "findings/rule.py")]
    assert said and (why in "".join(said) if why else not any(said))


def test_constants_that_are_no_numbers_are_left_alone() -> None:
    text = "A = 'text'\nB = True\nC = ('a', 1)\nD = 2 * A\nE = len('a')\n"
    assert not list(constants(text, "findings/rule.py"))


def test_each_threshold_is_explained() -> None:
    lines = TABLE.read_text(encoding="utf-8")
    table = list(constants(lines, "thresholds.py"))
    assert len(table) > 200
    assert [one.name for one in table if len(one.comment.split()) < MIN_WORDS_OF_A_COMMENT] == []
    assert [name for name, count in Counter(one.name for one in table).items() if count > 1] == []
    public = {name for name in vars(thresholds) if name.isupper()}
    assert {one.name for one in table} == public


def test_the_table_imports_nothing() -> None:
    tree = ast.parse(TABLE.read_text(encoding="utf-8"))
    imports = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imports == ["__future__"] and not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]


def test_each_threshold_is_used() -> None:
    used, imported = set(), []
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "examples") or path.name.startswith("test_"):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "thresholds" in text else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "thresholds":
                used.add(node.attr)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == "thresholds":
                imported.append(path.relative_to(ROOT).as_posix())
    assert {name for name in vars(thresholds) if name.isupper()} == used
    assert imported == [], "a copy of a threshold does not change with it: use thresholds.NAME"


def load_tool() -> Any:
    spec = importlib.util.spec_from_file_location("thresholds_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["thresholds_tool"] = module
    spec.loader.exec_module(module)
    return module


TOOL_MODULE = load_tool()


@pytest.fixture(scope="module")
def finder() -> Any:
    return TOOL_MODULE.TestFinder()


@pytest.mark.parametrize(
    ("value", "larger", "smaller"),
    [(5, 6, 4), (12, 13, 11), (50, 100, 25), (0.5, 1.0, 0.25), (-1000.0, -500.0, -2000.0)],
)
def test_a_threshold_is_made_larger_and_smaller(value: float, larger: float, smaller: float) -> None:
    assert TOOL_MODULE.changed(value) == (larger, smaller)
    assert smaller < value < larger


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("findings/loss_form/rule.py", {"backprobe/findings/loss_form/test_rule.py"}),
        ("findings/relations/single_values.py", {"backprobe/findings/zero_grad/test_rule.py"}),
        ("observe/trackers/buffers.py", {"tests/test_buffers.py"}),
        ("observe/trackers/retained.py", {"tests/test_retained_count.py"}),
    ],
)
def test_the_tests_of_a_module_are_found(module: str, tests: set[str], finder: Any) -> None:
    assert tests <= set(finder.of(module))


def test_each_threshold_has_tests_that_may_hold_it(finder: Any) -> None:
    users = TOOL_MODULE.users()
    modules = {module for each in users.values() for module in each}
    without = {module for module in modules if not finder.of(module)}
    assert [name for name, each in users.items() if without.issuperset(each)] == []
    files = [file for each in TOOL_MODULE.EXERCISED_BY.values() for file in each]
    assert [file for file in files if not (ROOT.parent / file).exists()] == []


def test_the_report_says_what_holds_a_threshold() -> None:
    held = TOOL_MODULE.Held("MIN_LOOKS", 5, (6, ["tests/test_a.py::test_b", "tests/test_a.py::test_c"]), (4, []))
    assert held.is_held
    assert TOOL_MODULE.report(held, ["findings/a/rule.py"]).splitlines() == [
        "MIN_LOOKS = 5  (findings/a/rule.py)",
        "  from above (6): tests/test_a.py::test_b and 1 more",
        "  from below (4): held by no test",
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the tool forks")
def test_a_changed_threshold_fails_the_tests_that_hold_it() -> None:
    """Tests with as many calls as the threshold fail if it is one more."""
    run = subprocess.run(
        [sys.executable, str(TOOL), "--rules", "LIKELIHOOD_MIN_CALLS"], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("LIKELIHOOD_MIN_CALLS = 6  (findings/loss_form/rule.py)\n")
    assert "from above (7): backprobe/findings/loss_form/test_rule.py" in run.stdout
    assert run.stdout.endswith("1 thresholds, 0 of which no test holds in either direction\n")
