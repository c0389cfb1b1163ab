"""Generated pages of the site (``make docs`` builds it, strictly)."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

import backprobe
from backprobe.commands import _COMMANDS
from backprobe.findings import own_rules

ROOT = Path(__file__).resolve().parents[1]
SITE = runpy.run_path(str(ROOT / "docs" / "site.py"))
PAGES = SITE["made"]()
CONFIG = (ROOT / "mkdocs.yml").read_text()


def test_every_kind_has_a_page() -> None:
    kinds = {kind.name for kind in own_rules().kinds}
    assert {page[len("findings/") : -len(".md")] for page in PAGES if page.startswith("findings/")} == {*kinds, "index"}


def test_the_reference_has_every_public_name_and_every_command() -> None:
    assert re.findall(r"heading: backprobe\.(\w+)$", PAGES["api.md"], re.MULTILINE) == backprobe.__all__
    assert re.findall(r"^## (\S+)$", PAGES["commands.md"], re.MULTILINE) == [one.name for one in _COMMANDS]
    assert "| `--budget SHARE` |" in PAGES["commands.md"]


def test_every_page_stands_in_the_navigation_once() -> None:
    named = re.findall(r"- (?:Home: )?([\w-]+\.md)$", CONFIG, re.MULTILINE)
    made = [page for page in PAGES if "/" not in page]
    assert sorted(named) == sorted([*made, *(path.name for path in (ROOT / "docs").glob("*.md"))])
    assert re.findall(r"^  - (\w[\w ]*):", CONFIG, re.MULTILINE)[-4:] == [
        "Tutorials",
        "How to",
        "Reference",
        "Explanation",
    ]


@pytest.mark.parametrize("path", [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")])
def test_links_of_a_page_lead_somewhere(path: str) -> None:
    """``linked`` raises for one that does not; those of the made pages were read above."""
    SITE["linked"]((ROOT / path).read_text(), path)


def test_links_are_those_of_the_site() -> None:
    linked = SITE["linked"]
    assert linked("[a](../../../docs/runs.md#b)", "backprobe/findings/inplace/inplace.md") == "[a](../runs.md#b)"
    assert linked("[a](../backprobe/findings/README.md)", "docs/runs.md") == "[a](findings/index.md)"
    assert linked("![p](docs/pictures/run.svg)", "README.md") == "![p](pictures/run.svg)"
    assert linked("[examples](examples/README.md)", "README.md") == "examples"
    assert linked("[u](https://a.b/c.md) `[x](y.py)`", "README.md") == "[u](https://a.b/c.md) `[x](y.py)`"
    with pytest.raises(ValueError, match=r"README\.md links to docs/none\.md, which is not there"):
        linked("[a](docs/none.md)", "README.md")


def test_doctests_become_blocks_of_code() -> None:
    assert SITE["fenced"]("Says.\n\n>>> 1\n1\n\nMore.") == "Says.\n\n\n```pycon\n>>> 1\n1\n```\n\n\nMore."
    assert SITE["fenced"](">>> 1\n1") == "\n```pycon\n>>> 1\n1\n```"


def test_the_gallery_shows_the_finding_of_each_report(tmp_path: Path) -> None:
    shown = runpy.run_path(str(ROOT / "docs" / "gallery.py"))["REPORTS"]
    scripts = [word for one in shown for word in one.command if word.endswith(".py")]
    assert len(scripts) == len(shown) and all((ROOT / script).is_file() for script in scripts)
    told = [
        {"name": one.name, "kind": "inplace" if number else None, "found": "F" * number}
        for number, one in enumerate(shown)
    ]
    (tmp_path / "reports.json").write_text(json.dumps(told))
    page = SITE["gallery"](tmp_path)
    assert page.count("> No problems found.") == 1 and "> [`inplace`](findings/inplace.md): FF\n" in page
    assert all(f'href="reports/{one.name}.html"' in page for one in shown)
    assert "backprobe run backprobe/examples/gpt.py" in page and "{run}" not in page and "{page}" not in page
    with pytest.raises(FileNotFoundError, match=r"make the reports with `python docs/gallery\.py"):
        SITE["gallery"](tmp_path / "none")
