"""What a contributor is told holds: targets of make that documents name, versions, limits of time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
VARIABLES = dict(re.findall(r"^([A-Z]+) [?:]?= (\S+)$", MAKEFILE, re.MULTILINE))
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / ".ci" / "run"]


def named(text: str, whole: bool) -> set[str]:
    """The targets in commands: between backticks, in a block of code, or anywhere if the `whole` text is code."""
    blocks = [text] if whole else re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"`make ([^`]+)`", text)
    for block in blocks:
        commands += re.findall(r"^\s*(?:exec )?make ([^#\n]+)", block, re.MULTILINE)
    return {word for command in commands for word in command.split() if "=" not in word}


def test_targets_of_make_that_documents_name_exist() -> None:
    found = {path: named(path.read_text(), path.suffix != ".md") for path in DOCUMENTS}
    assert found[ROOT / ".ci" / "run"] and found[ROOT / "AGENTS.md"]
    assert {str(path): names - TARGETS for path, names in found.items() if names - TARGETS} == {}


def test_versions_of_torch_agree() -> None:
    versions = (ROOT / "docs" / "versions.md").read_text()
    for variable in ("TORCH", "OLDEST"):
        assert f"| {VARIABLES[variable]} |" in versions
    (least,) = re.findall(r'"torch>=([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
    assert VARIABLES["OLDEST"] == f"{least}.0"


OURS = [path for pattern in ("*.py", "broken/*.py") for path in sorted(Path(__file__).parent.glob(pattern))]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_limits_of_time_are_for_what_hangs(path: Path) -> None:
    """A test waits for an event. Its limit ends what hangs, and is longer than any machine needs."""
    limits = re.findall(r"\btimeout(?:: \w+)? ?= ?([0-9.]+)", path.read_text())
    assert [limit for limit in limits if float(limit) < 600] == []
