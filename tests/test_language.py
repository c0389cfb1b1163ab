"""The check of names and prose: it finds each kind of offence, and the project keeps to its baseline."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "language.py"


def load():
    spec = importlib.util.spec_from_file_location("language", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["language"] = module
    spec.loader.exec_module(module)
    return module


LANGUAGE = load()


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("MOST = 3\n", ["constant"]),
        ("_SEEN: int = 3\n", ["constant"]),
        ("MAX_SEEN_NODES = 3\n", []),
        ("def f():\n    MOST = 3\n", []),
        ('"""What was seen of a step."""\n', ["docstring"]),
        ('def f():\n    """Return the first bad node."""\n', []),
        ('class A:\n    """Those who look for one thing."""\n', ["docstring"]),
        ("x = 1  # nobody asks for it\n", ["idiom"]),
        ('def f():\n    """Store the node.\n\n    The loss is told later.\n    """\n', ["idiom"]),
        ('x = "nobody"\n', []),
    ],
)
def test_rules_of_python(source: str, rules: list[str]) -> None:
    assert [one.rule for one in LANGUAGE.check_python("file.py", source)] == rules


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("x" * 121, ["line"]),
        ("x" * 120, []),
        ("| " + "x" * 130, []),
        ("see [the page](" + "x" * 130 + ")", []),
        ("```\n" + "x" * 130 + "\n```", []),
        ("Alarms are told.\n", ["idiom"]),
        ("Backprobe reports alarms.\n", []),
    ],
)
def test_rules_of_markdown(text: str, rules: list[str]) -> None:
    assert [one.rule for one in LANGUAGE.check_markdown("page.md", text)] == rules


def test_the_project_keeps_to_the_baseline() -> None:
    done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_new_offence_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    new = LANGUAGE.Offence("backprobe/new.py", 3, "constant", "MOST")
    monkeypatch.setattr(LANGUAGE, "offences", lambda: iter([new]))
    monkeypatch.setattr(sys, "argv", ["language.py"])
    assert LANGUAGE.main() == 1
    assert "backprobe/new.py:3: MOST" in capsys.readouterr().err
