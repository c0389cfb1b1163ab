"""Write the tables of kinds, by severity and by symptom, from what the rules state: make docs."""

from __future__ import annotations

import re
from pathlib import Path

from backprobe.findings import SEVERITIES, Question, own_rules
from backprobe.records.roles import ROLE_MEANINGS

ROOT = Path(__file__).parents[1]
FINDINGS = Path("backprobe") / "findings"
INDEX, SYMPTOMS = ROOT / FINDINGS / "README.md", ROOT / "docs" / "symptoms.md"
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


def roles_table(text: str) -> str:
    """Return `text` with a new table of the roles of lines."""
    rows = [f"| `{role}` | {meaning} |" for role, meaning in ROLE_MEANINGS.items()]
    return _with_table(text, "| role |", ["| role | the line |", "| --- | --- |", *rows])


def symptoms_sections(text: str) -> str:
    """Return `text` with new sections, one for each question, of the kinds that answer it; those on request last."""
    known = own_rules()
    topics = {kind.name: one.topic.name if one.topic else "" for one in known.rules for kind in one.kinds}
    lines = []
    for question in Question:
        lines += [f"## {question.value}", "", "| kind | what it reports | what it points to |", "| --- | --- | --- |"]
        kinds = [kind for kind in known.kinds if question in kind.questions]
        for kind in sorted(kinds, key=lambda kind: topics[kind.name]):
            topic, page = topics[kind.name], FOLDERS[kind.name].relative_to("backprobe") / f"{kind.name}.md"
            says = f"with `--check {topic}`: {kind.summary}" if topic else kind.summary
            lines.append(f"| [{kind.name}](../backprobe/{page.as_posix()}) | {says} | {kind.points_to} |")
        lines.append("")
    return text.partition("\n## ")[0] + "\n" + "\n".join(lines)


def _with_table(text: str, header: str, rows: list[str]) -> str:
    """Return `text` with `rows` in place of the table that begins with `header`."""
    table = re.compile(rf"^{re.escape(header)}.*\n(\|.*\n)*", re.MULTILINE)
    return table.sub(lambda _: "\n".join(rows) + "\n", text, count=1)


if __name__ == "__main__":
    INDEX.write_text(roles_table(kinds_table(INDEX.read_text())))
    SYMPTOMS.write_text(symptoms_sections(SYMPTOMS.read_text()))
