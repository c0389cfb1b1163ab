"""Explanations of findings: pages for people without a network, a schema for programs, annotations for GitHub."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from handmade import traced
from hypothesis import given, settings
from hypothesis import strategies as st

from backprobe.commands import main
from backprobe.findings import own_rules, pages
from backprobe.findings.json_size import MAX_JSON_BYTES, as_json
from backprobe.records import Finding, FindingSite, Site
from backprobe.view.github import workflow_commands

SCHEMA = json.loads(pages.schema())
BROKEN = """
import torch
model = torch.nn.Linear(2, 1)
(model(torch.ones(1, 2)) * float("inf")).sum().backward()
"""


def test_every_kind_has_a_page_and_every_page_a_kind() -> None:
    assert pages.kinds() == sorted(kind.name for kind in own_rules().kinds)


@pytest.mark.parametrize("kind", pages.kinds())
def test_a_page_is_printed_without_links_that_lead_nowhere(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", kind]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"# {kind}\n") and "## Instead" in text and ".md)" not in text


def test_all_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    text = capsys.readouterr().out
    assert all(kind in text for kind in pages.kinds())


def test_the_skill_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "skill"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("---\nname: backprobe\n")
    topics = {topic.name for topic in own_rules().topics}
    assert set(re.findall(r"--check (\w+)", text)) <= topics
    for command in re.findall(r"`backprobe (\w+)", text):
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])


def test_an_unknown_kind_has_near_ones_named(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, says in (("none-gard", "none-grad"), ("../records", "lists all"), ("README", "lists all")):
        assert main(["explain", wrong]) == 2
        assert says in capsys.readouterr().err


def test_nothing_of_it_needs_torch() -> None:
    calls = "main(['explain']), main(['explain', 'inplace']), main(['schema'])"
    script = f"import sys; from backprobe.commands import main; {calls}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_the_schema_is_one_and_forgets_no_field() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = traced().as_dict()
    assert set(document) == set(SCHEMA["required"])
    found = Finding("x", "error", "x", "certain")
    assert set(found.as_dict()) == set(SCHEMA["$defs"]["finding"]["required"])


def test_written_findings_match_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(BROKEN)
    command = [sys.executable, "-m", "backprobe", "run", "--out", "kept", "--format", "github", "--findings", "f.json"]
    script = ["train.py", "--token", "hf_abcdefghijklmnopqrstuvwxyz012345", "--lr", "1"]
    ran = subprocess.run([*command, *script], cwd=tmp_path, capture_output=True, text=True, check=True)
    document = json.loads((tmp_path / "f.json").read_text())
    jsonschema.validate(document, SCHEMA)
    run = document["run"]
    assert run["script"] == "train.py" and run["arguments"][2:] == ["--lr", "1"] and "hf_abc" not in str(run)
    assert run["torch"].startswith("2.") and {*run} >= {"python", "backprobe"}
    (found,) = document["findings"]
    line = f"::error file=train.py,line=4,title=backprobe%3A {found['kind']}::"
    assert [text[: len(line)] for text in ran.stderr.splitlines() if text.startswith("::")] == [line]
    assert main(["show", str(tmp_path / "kept"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert main(["show", str(tmp_path / "kept"), "--format", "github"]) == 0
    assert capsys.readouterr().out.count("::error ") == 1


def test_commands_for_github_are_escaped(tmp_path: Path) -> None:
    site = Site(str(tmp_path / "a,b.py"), 7, "f", "x = 1")
    other = Site("/elsewhere/c.py", 9, "g", "y: 2")
    found = [
        Finding("none-grad", "warning", "50% of it\nis cut", "likely", sites=(FindingSite("cut", site),)),
        Finding("inplace", "info", "t", "certain", sites=(FindingSite("mutated", other), FindingSite("saved", site))),
        Finding("rank-failed", "error", "gone", "certain", advice="look: there"),
    ]
    assert workflow_commands(found, tmp_path) == [
        "::warning file=a%2Cb.py,line=7,title=backprobe%3A none-grad::50%25 of it%0Ais cut",
        f"::notice file=/elsewhere/c.py,line=9,title=backprobe%3A inplace::t%0Asaved: {tmp_path}/a,b.py:7 x = 1",
        "::error title=backprobe%3A rank-failed::gone%0Alook: there",
    ]


@settings(max_examples=15)
@given(st.integers(0, 300), st.integers(0, 400), st.integers(0, 5000))
def test_json_is_bounded_and_the_first_finding_stays(findings: int, names: int, letters: int) -> None:
    found = [
        Finding(
            "none-grad",
            "warning",
            f"{i} " + "t" * letters,
            "likely",
            parameters=tuple(f"layer.{n}.weight" for n in range(names)),
            evidence={"where": {f"k{n}": [n] * 5 for n in range(names)}},
            sites=tuple(FindingSite("cut", Site("train.py", n, "f", "x" * letters)) for n in range(names % 20)),
        ).as_dict()
        for i in range(findings)
    ]
    whole = {**traced().as_dict(), "findings": found}
    text = as_json(whole)
    short = json.loads(text)
    assert len(text.encode()) <= MAX_JSON_BYTES
    jsonschema.validate(short, SCHEMA)
    assert [one["title"][:4] for one in short["findings"]] == [one["title"][:4] for one in found][
        : len(short["findings"])
    ]
    assert bool(short["findings"]) == bool(found)
    assert ("left_out" in short) == (len(as_json(whole, None)) > MAX_JSON_BYTES)
    assert json.loads(as_json(whole, None)) == json.loads(json.dumps(whole))
