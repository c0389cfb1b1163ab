"""Check names and prose against the project's language rules (CONTRIBUTING.md, "Names and prose").

    python tools/language.py            # fails if a file breaks a rule more often than language_baseline.json allows
    python tools/language.py --list     # every place that breaks a rule
    python tools/language.py --lower    # write today's lower counts into the baseline; never raises one

Rules:

    constant    a module constant whose name is a bare adjective, participle or pronoun, such as MOST or SEEN
    docstring   a first line that begins with a pronoun or a question word: it says neither what the code does nor what
                it is
    idiom       a word or phrase that the project coined where the field has a word
    line        a line of Markdown of more than 120 characters outside tables, links and code

Code that existed before the rules is in the baseline: the count of each rule in each file. A new file starts at zero.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tools" / "language_baseline.json"
PYTHON_FOLDERS = ("backprobe", "bench", "tools", "tests", "docs", "page/e2e")
#: Scripts that reproduce failures are as their authors wrote them.
EXCLUDED_FOLDERS = ("examples",)
MAX_MARKDOWN_COLUMNS = 120

VAGUE_CONSTANTS = frozenset(
    {
        *("MOST", "LEAST", "MANY", "FEW", "SOME", "SEVERAL", "ENOUGH", "EVERY", "ALL", "NONE", "FIRST", "LAST", "NEXT"),
        *("SOON", "LATE", "LATER", "EARLY", "OFTEN", "SELDOM", "AGAIN", "LARGE", "SMALL", "TINY", "LONG", "SHORT"),
        *("DEEP", "NEAR", "FAR", "SEEN", "SHOWN", "TOLD", "KNOWN", "GIVEN", "TAKEN", "KEPT", "HELD", "MADE", "DONE"),
        *("GONE", "LOST", "ASKED", "PASSED", "AWAY", "APART", "BESIDES", "THERE", "HERE", "NOW", "THEN", "ONE", "TWO"),
        *("PATIENCE", "SHARE", "ROOM", "REACH", "AHEAD", "BEHIND", "AROUND", "BETWEEN"),
    }
)
VAGUE_FIRST_WORDS = frozenset(
    {
        *("what", "who", "whom", "whose", "where", "when", "why", "that", "those", "these", "it", "they"),
        *("one", "ones", "such"),
    }
)
IDIOMS = re.compile(
    r"""(?ix)\b(
      besides | seldom | heed(s|ed)? | mourn(s|ed)? | spoil(s|t|ed)? | strays? | anybody | somebody | nobody |
      is\ to\ be\ had | are\ to\ be\ had | come(s)?\ to\ nothing | so\ many\ (steps|seconds|times) | by\ lot |
      (is|are|was|were)\ told | (is|are|was|were)\ looked\ (at|into|for) | (is|are|was|were)\ heard |
      (is|are|was|were)\ said | is\ what\ there\ is | of\ old | for\ good | is\ there\ any\ more | no\ more\ than\ that
    )\b"""
)


@dataclass(frozen=True)
class Offence:
    file: str
    line: int
    rule: str
    text: str


def offences() -> Iterator[Offence]:
    """Check every Python file of the project's folders and every page."""
    for folder in PYTHON_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not _excluded(path):
                yield from check_python(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    for path in [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("corpus/*.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("backprobe/**/*.md")),
    ]:
        yield from check_markdown(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def _excluded(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return name.startswith(EXCLUDED_FOLDERS) or "node_modules" in name


def check_python(file: str, source: str) -> Iterator[Offence]:
    """Check the constants, docstrings and comments of one file."""
    tree = ast.parse(source)
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for name in (one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)):
            if name.id.lstrip("_") in VAGUE_CONSTANTS:
                yield Offence(file, node.lineno, "constant", name.id)
    for owner in ast.walk(tree):
        if not isinstance(owner, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        text = ast.get_docstring(owner)
        if text is None:
            continue
        at = owner.body[0].lineno
        first = re.match(r"[A-Za-z']+", text)
        if first is not None and first[0].lower() in VAGUE_FIRST_WORDS:
            yield Offence(file, at, "docstring", text.partition("\n")[0])
        for found in IDIOMS.finditer(text):
            yield Offence(file, at, "idiom", found[0])
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for found in IDIOMS.finditer(token.string):
                yield Offence(file, token.start[0], "idiom", found[0])


def check_markdown(file: str, text: str) -> Iterator[Offence]:
    """Check the lines of one page."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        if code or line.startswith("    "):
            continue
        if len(line) > MAX_MARKDOWN_COLUMNS and not line.startswith("|") and not re.search(r"\]\(|https?://", line):
            yield Offence(file, number, "line", f"{len(line)} characters")
        for found in IDIOMS.finditer(line):
            yield Offence(file, number, "idiom", found[0])


def main() -> int:
    parser = argparse.ArgumentParser(description="Check names and prose against the project's language rules.")
    parser.add_argument("--list", action="store_true", help="print every place that breaks a rule")
    parser.add_argument("--lower", action="store_true", help="write counts that fell into the baseline")
    options = parser.parse_args()
    found = list(offences())
    if options.list:
        for one in found:
            print(f"{one.file}:{one.line}: {one.rule}: {one.text}")
        return 0
    counts = Counter(f"{one.file}: {one.rule}" for one in found)
    allowed: dict[str, int] = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {}
    more = {key: count for key, count in counts.items() if count > allowed.get(key, 0)}
    for key, count in sorted(more.items()):
        print(f"{key}: {count}, and {allowed.get(key, 0)} are allowed", file=sys.stderr)
        for one in found:
            if f"{one.file}: {one.rule}" == key:
                print(f"  {one.file}:{one.line}: {one.text}", file=sys.stderr)
    if options.lower:
        first = not BASELINE.exists()
        lower = {key: count if first else min(count, allowed.get(key, 0)) for key, count in counts.items()}
        lower = {key: count for key, count in lower.items() if count}
        BASELINE.write_text(json.dumps(dict(sorted(lower.items())), indent=0) + "\n", encoding="utf-8")
    total = Counter(one.rule for one in found)
    print(
        "language:",
        ", ".join(f"{count} {rule}" for rule, count in sorted(total.items())) or "nothing",
        "allowed by the baseline",
    )
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
