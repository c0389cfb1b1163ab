"""The documentation: its scripts do what it says, and every kind of finding has a page."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from case_sampling import sample_cases
from forked import found_in

from backprobe.findings import own_rules

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FINDINGS = ROOT / "backprobe" / "findings"
PAGES = {path.stem: path.read_text() for path in sorted(FINDINGS.glob("*/*.md"))}
INDEX = (FINDINGS / "README.md").read_text()
HEADINGS = ["What it says", "Why it matters", "Example", "Instead", "Known limits"]
MARK = "# <-- here"
KINDS = [kind.name for kind in own_rules().kinds]
#: The topics of the kinds that are checked only on request.
ASK = {kind.name: one.topic.name for one in own_rules().rules if one.topic for kind in one.kinds}


def sections(text: str) -> dict[str, str]:
    """Heading -> what is below it."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def only(found: list[str]) -> str:
    assert len(found) == 1, f"{len(found)} blocks where there should be one"
    return found[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Kind-section -> exit code, what was found, and the report of its script."""
    folder = tmp_path_factory.mktemp("pages")
    scripts = {}
    for kind, text in PAGES.items():
        for section in ("Example", "Instead"):
            for block in blocks(sections(text).get(section, ""), "python")[:1]:
                name = f"{kind}-{section}"
                (folder / name).mkdir()
                (folder / name / "train.py").write_text(block)
                scripts[name] = ("train.py", ["--check", ASK[kind]] if kind in ASK else [])
    return found_in(folder, scripts)


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_has_its_sections(kind: str) -> None:
    text = PAGES[kind]
    assert text.startswith(f"# {kind}\n\n")
    assert list(sections(text)) == HEADINGS
    for section in ("Example", "Instead"):
        only(blocks(sections(text)[section], "python"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_the_example_gives_one_finding_at_the_marked_line(kind: str, runs) -> None:
    example = sections(PAGES[kind])["Example"]
    script, output = only(blocks(example, "python")), only(blocks(example, "text"))
    marked = [n for n, line in enumerate(script.splitlines(), 1) if line.rstrip().endswith(MARK)]
    assert len(marked) == 1
    _, findings, report = runs(f"{kind}-Example")
    assert [f["kind"] for f in findings] == [kind], report
    main = findings[0]["sites"][0]
    assert main["line"] == marked[0], report
    assert re.search(rf"^\| \[{kind}\].*\| {findings[0]['severity']} \|$", INDEX, re.MULTILINE)
    # Not compared to the letter: the output holds numbers, and words of torch.
    assert output.startswith(f"1. {kind}  {findings[0]['severity']}, {findings[0]['confidence']}\n")
    assert re.search(rf"^ +{main['role']} +train\.py:{main['line']} in ", output, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_the_mended_script_gives_no_finding(kind: str, runs) -> None:
    assert MARK not in only(blocks(sections(PAGES[kind])["Instead"], "python"))
    code, findings, report = runs(f"{kind}-Instead")
    assert [f["title"] for f in findings] == []
    assert code == 0, report


def test_every_kind_has_a_page_and_every_page_is_of_a_kind() -> None:
    assert sorted(PAGES) == sorted(KINDS)


@pytest.mark.parametrize(
    ("table", "file"), [("kinds_table", "INDEX"), ("roles_table", "INDEX"), ("symptoms_sections", "SYMPTOMS")]
)
def test_the_tables_of_kinds_match_the_rules(table: str, file: str) -> None:
    made = runpy.run_path(str(DOCS / "kinds.py"))
    text = made[file].read_text()
    assert made[table](text) == text, "make docs"


def test_every_kind_answers_a_question_and_says_what_it_points_to() -> None:
    """Behind how to ask, if it is reported only on request."""
    linked: dict[str, set[str | None]] = {}
    row = re.compile(
        r"\| \[([\w-]+)\]\(\.\./backprobe/findings/\w+/([\w-]+)\.md\) \| (?:with `--check (\w+)`: )?.+ \| \S.* \|$"
    )
    for line in (DOCS / "symptoms.md").read_text().splitlines():
        if line.startswith("| ["):
            matched = row.match(line)
            assert matched, line
            kind, page, topic = matched.groups()
            assert kind == page
            linked.setdefault(kind, set()).add(topic)
    assert linked == {kind: {ASK.get(kind)} for kind in KINDS}


def test_the_readme_fits_on_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


DOCUMENTS = {
    path.name: "\n".join(blocks(path.read_text(), "python"))
    for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
}


#: Pages that run many scripts, or a real encoder.
SLOW_PAGES = {"compare.md", "capture.md", "first-hour.md", "frameworks.md"}


@pytest.mark.parametrize(
    "name",
    [
        *sample_cases((name for name, script in DOCUMENTS.items() if script and name not in SLOW_PAGES), 2),
        *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(SLOW_PAGES)),
    ],
)
def test_the_python_of_a_document_runs(name: str, tmp_path) -> None:
    (tmp_path / "script.py").write_text(DOCUMENTS[name])
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr + done.stdout
