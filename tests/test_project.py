"""Consistency of the repository: make targets, versions, time limits and licences agree with the documents."""

from __future__ import annotations

import json
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


OURS = [path for folder in ("tests", "corpus/snippets") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_time_limits_only_catch_hangs(path: Path) -> None:
    """A test waits for an event. Its limit ends what hangs, and is longer than any machine needs."""
    limits = re.findall(r"\btimeout(?:: \w+)? ?= ?([0-9.]+)", path.read_text())
    assert [limit for limit in limits if float(limit) < 600] == []


# Licences


def test_one_licence_is_named_everywhere() -> None:
    assert (ROOT / "LICENSE").read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]
    page, lock = (json.loads((ROOT / "page" / name).read_text()) for name in ("package.json", "package-lock.json"))
    named = re.findall(r'^license = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    named += [page["license"], lock["packages"][""]["license"]]
    named += re.findall(r"Licence: ([\w.-]+\w)", (ROOT / "README.md").read_text())
    named += re.findall(r"<!-- backprobe: ([\w.-]+\w)\.", PAGE)
    assert named == ["Apache-2.0"] * 5


PAGE = (ROOT / "backprobe" / "report" / "page.html").read_text(encoding="utf-8")
NOTICES = (ROOT / "THIRD_PARTY_NOTICES").read_text(encoding="utf-8")


def test_the_page_and_a_release_have_the_notices_of_its_libraries() -> None:
    assert PAGE.endswith(f"<!--\n{NOTICES}-->\n")
    (files,) = re.findall(r"^license-files = (.+)$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert json.loads(files) == ["LICENSE", "THIRD_PARTY_NOTICES"]


def test_each_library_of_the_page_has_a_notice_of_the_version_that_is_locked() -> None:
    listed = dict(re.findall(r"^  (\S+) (\S+) \([\w.-]+\)$", NOTICES, re.MULTILINE))
    packages = json.loads((ROOT / "page" / "package-lock.json").read_text())["packages"]
    direct = json.loads((ROOT / "page" / "package.json").read_text())["dependencies"]
    assert set(direct) <= set(listed)
    assert listed == {name: packages[f"node_modules/{name}"]["version"] for name in listed}
    for name, version in listed.items():
        text = NOTICES.partition(f"{'=' * 72}\n{name} {version}\n")[2].partition("=" * 72)[0]
        assert "Copyright" in text and len(text) > 500, name


def test_a_release_without_notices_is_found() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("release_check", ROOT / "tools" / "release_check.py")
    assert spec is not None and spec.loader is not None
    check = module_from_spec(spec)
    spec.loader.exec_module(check)
    assert check.wrong_notices() == []
    names = [f"backprobe/{name}" for name in check.NEEDED]
    folder = "backprobe-0.1.0.dist-info/licenses"
    assert check.wrong_files([*names, f"{folder}/LICENSE"], set()) == ["lacks THIRD_PARTY_NOTICES"]
    assert check.wrong_files([*names, "LICENSE", "THIRD_PARTY_NOTICES"], set()) == []
