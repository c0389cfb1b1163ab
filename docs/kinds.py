"""Write the table of kinds among the findings' pages, from what the findings state of themselves: make docs."""

from __future__ import annotations

import re
from pathlib import Path

from backprobe.findings import SEVERITIES, own_rules

INDEX = Path(__file__).parents[1] / "backprobe" / "findings" / "pages" / "README.md"


def made(text: str) -> str:
    """Return `text` with a new table of kinds, in the order of findings: the most severe first."""
    known = own_rules()
    topics = {kind.name: question.topic for question in known.rules for kind in question.kinds}
    rows = ["| kind | what it says | severity |", "| --- | --- | --- |"]
    for kind in sorted(known.kinds, key=lambda kind: SEVERITIES.index(kind.severity)):
        topic = topics[kind.name]
        says = kind.summary if topic is None else f"with `--check {topic.name}`: {kind.summary}"
        rows.append(f"| [{kind.name}]({kind.name}.md) | {says} | {kind.severity} |")
    return re.sub(r"^\| kind \|.*\n(\|.*\n)*", lambda _: "\n".join(rows) + "\n", text, count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    INDEX.write_text(made(INDEX.read_text()))
