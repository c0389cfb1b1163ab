"""Notes that state an invariant: each stands in one place, under a name by which it is referred to."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import backprobe

ROOT = Path(backprobe.__file__).parent
_NOTE = re.compile(r"Note\s[\s#:]*\[([^\]]*)\]")
#: A definition begins its line.
_DEFINED = re.compile(r"^[#:\s\"]*Note \[([^\]\n]*)\](?::|$)", re.MULTILINE)
#: A letter and a number for a name, where one is written or referred to.
_NUMBERED = re.compile(r"^[#:\s\"]*[A-Z]\d{1,2}\. [A-Z]|\((?:see )?[A-Z]\d{1,2}(?:[,\s][^)\n]*)?\)", re.MULTILINE)


def files() -> Iterator[Path]:
    return (path for path in ROOT.rglob("*.py") if not path.is_relative_to(ROOT / "examples"))


def words(path: Path) -> str:
    """The comments and texts of a file."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return "\n".join(token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))


def test_every_note_that_is_referred_to_is_written_once() -> None:
    texts = {path: words(path) for path in files()}
    defined = Counter(name for text in texts.values() for name in _DEFINED.findall(text))
    assert [name for name, count in defined.items() if count > 1] == []
    named = [(path.name, " ".join(re.split(r"[\s#:]+", name))) for path in texts for name in _NOTE.findall(texts[path])]
    assert [one for one in named if not defined[one[1]]] == []


def test_notes_have_names_not_numbers() -> None:
    assert [(path.name, match) for path in files() for match in _NUMBERED.findall(words(path))] == []


def test_a_note_is_named_on_one_line_so_that_a_search_finds_it() -> None:
    assert [(path.name, name) for path in files() for name in _NOTE.findall(words(path)) if "\n" in name] == []
