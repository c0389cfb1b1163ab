"""The documentation: its scripts do what it says, and every kind of finding has a page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from backprobe.explain import _ORDER

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text() for path in sorted((DOCS / "findings").glob("*.md")) if path.stem != "README"}
INDEX = (DOCS / "findings" / "README.md").read_text()
HEADINGS = ["What it says", "Why it matters", "Example", "Instead", "Known limits"]
MARK = "# <-- here"
#: Kinds that are looked for when they are asked for: the topic.
ASK = {
    "wrong-backward": "functions",
    "wrong-double-backward": "functions",
    "first-divergence": "divergence",
    "saved-memory": "memory",
    "checkpoint-gradient-differs": "checkpoints",
}


def sections(text: str) -> dict[str, str]:
    """Heading -> what is below it."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def only(found: list[str]) -> str:
    assert len(found) == 1, f"{len(found)} blocks where there should be one"
    return found[0]


def watch(folder: Path, script: str, kind: str) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
    """Run `script` under backprobe; its findings."""
    folder.mkdir()
    (folder / "train.py").write_text(script)
    ask = ["--ask", ASK[kind]] if kind in ASK else []
    command = [sys.executable, "-m", "backprobe", "run", "--no-keep", *ask, "--findings", "findings.json", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=80)
    out = folder / "findings.json"
    assert out.exists(), done.stderr
    return done, json.loads(out.read_text())["findings"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(kind, section) -> the run of its script. A few at a time: most of the time goes into importing torch."""
    folder = tmp_path_factory.mktemp("pages")
    with ThreadPoolExecutor(4) as pool:
        found: dict[tuple[str, str], Future] = {}
        for kind, text in PAGES.items():
            for section in ("Example", "Instead"):
                for block in blocks(sections(text).get(section, ""), "python")[:1]:
                    found[kind, section] = pool.submit(watch, folder / f"{kind}-{section}", block, kind)
        yield found
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_has_its_sections(kind: str) -> None:
    text = PAGES[kind]
    assert text.startswith(f"# {kind}\n\n")
    assert list(sections(text)) == HEADINGS
    for section in ("Example", "Instead"):
        only(blocks(sections(text)[section], "python"))


@pytest.mark.parametrize("kind", PAGES)
def test_the_example_gives_one_finding_at_the_marked_line(kind: str, runs) -> None:
    example = sections(PAGES[kind])["Example"]
    script, output = only(blocks(example, "python")), only(blocks(example, "text"))
    marked = [n for n, line in enumerate(script.splitlines(), 1) if line.rstrip().endswith(MARK)]
    assert len(marked) == 1
    done, findings = runs[kind, "Example"].result()
    assert [f["kind"] for f in findings] == [kind], done.stderr
    main = findings[0]["sites"][0]
    assert main["line"] == marked[0], done.stderr
    assert f"| [{kind}]({kind}.md) |" in INDEX
    assert re.search(rf"^\| \[{kind}\].*\| {findings[0]['severity']} \|$", INDEX, re.MULTILINE)
    # Not compared to the letter: the output holds numbers, and words of torch.
    assert output.startswith(f"1. {kind}  {findings[0]['severity']}, {findings[0]['confidence']}\n")
    assert re.search(rf"^ +{main['role']} +train\.py:{main['line']} in ", output, re.MULTILINE)


@pytest.mark.parametrize("kind", PAGES)
def test_the_mended_script_gives_no_finding(kind: str, runs) -> None:
    assert MARK not in only(blocks(sections(PAGES[kind])["Instead"], "python"))
    done, findings = runs[kind, "Instead"].result()
    assert [f["title"] for f in findings] == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", _ORDER)
def test_every_kind_has_a_page_and_a_row(kind: str) -> None:
    assert kind in sorted(PAGES)
    assert re.search(rf"^\| \[{kind}\]\({kind}\.md\) \| .+ \| (error|warning|info) \|$", INDEX, re.MULTILINE)


def test_every_page_is_of_a_kind() -> None:
    assert set(PAGES) <= set(_ORDER)


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_the_python_of_a_document_runs(path: Path, tmp_path) -> None:
    script = "\n".join(blocks(path.read_text(), "python"))
    if "import" not in script:
        pytest.skip("no script in it")
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, timeout=80)
    assert done.returncode == 0, done.stderr
