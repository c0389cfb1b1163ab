"""Write the tables of kinds, in README and among the findings, from what the rules state: make docs."""

from __future__ import annotations

import re
from pathlib import Path

from backprobe.findings import SEVERITIES, Question, own_rules

ROOT = Path(__file__).parents[1]
FINDINGS = Path("backprobe") / "findings"
INDEX, README = ROOT / FINDINGS / "README.md", ROOT / "README.md"
#: Kind -> the folder of its rule, relative to the repository.
FOLDERS = {path.stem: path.parent.relative_to(ROOT) for path in (ROOT / FINDINGS).glob("*/*.md")}


def kinds_table(text: str) -> str:
    """Return `text` with a new table of kinds, in the order of findings: the most severe first."""
    known = own_rules()
    topics = {kind.name: one.topic for one in known.rules for kind in one.kinds}
    rows = ["| kind | what it reports | severity |", "| --- | --- | --- |"]
    for kind in sorted(known.kinds, key=lambda kind: SEVERITIES.index(kind.severity)):
        topic = topics[kind.name]
        says = kind.summary if topic is None else f"with `--check {topic.name}`: {kind.summary}"
        rows.append(f"| [{kind.name}]({FOLDERS[kind.name].name}/{kind.name}.md) | {says} | {kind.severity} |")
    return _with_table(text, "| kind |", rows)


def questions_table(text: str) -> str:
    """Return `text` with a new table of questions, each with the kinds that answer it; those on request come last."""
    known = own_rules()
    topics = {kind.name: one.topic.name if one.topic else "" for one in known.rules for kind in one.kinds}
    rows = ["| question | kinds |", "| --- | --- |"]
    for question in Question:
        by_topic: dict[str, list[str]] = {"": []}
        for kind in known.kinds:
            if question in kind.questions:
                points_to = f" ({kind.points_to})" if kind.points_to else ""
                link = f"[{kind.name}]({(FOLDERS[kind.name] / kind.name).as_posix()}.md){points_to}"
                by_topic.setdefault(topics[kind.name], []).append(link)
        always = ", ".join(by_topic.pop(""))
        asked = ", ".join(f"with `--check {topic}` {', '.join(links)}" for topic, links in by_topic.items())
        rows.append(f"| {question.value} | {', and '.join(filter(None, (always, asked)))} |")
    return _with_table(text, "| question |", rows)


def _with_table(text: str, header: str, rows: list[str]) -> str:
    """Return `text` with `rows` in place of the table that begins with `header`."""
    table = re.compile(rf"^{re.escape(header)}.*\n(\|.*\n)*", re.MULTILINE)
    return table.sub(lambda _: "\n".join(rows) + "\n", text, count=1)


if __name__ == "__main__":
    INDEX.write_text(kinds_table(INDEX.read_text()))
    README.write_text(questions_table(README.read_text()))
