"""The page of each kind of finding, which is in the folder of its rule: ``KIND.md``."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib import resources
from typing import Any

from ..basics.errors import BackprobeError

#: What the findings say in JSON, as a JSON Schema.
SCHEMA = "findings.schema.json"


def page(kind: str) -> str:
    """Return the page of a finding kind in Markdown, with links replaced by their text.

    :raises BackprobeError: no such kind has a page.
    """
    file = _pages().get(kind)
    if file is None:
        near = difflib.get_close_matches(kind, kinds(), 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "'backprobe explain' lists all"
        raise BackprobeError(f"no kind of finding is called {kind!r}: {hint}")
    return re.sub(r"\[([^\]]+)\]\([\w./-]+\.md\)", r"\1", file.read_text(encoding="utf-8"))


def skill() -> str:
    """Return the text of ``SKILL.md``: instructions for a language model that debugs a gradient."""
    return resources.files(__package__.rpartition(".")[0]).joinpath("SKILL.md").read_text(encoding="utf-8")


def kinds() -> list[str]:
    """Return the finding kinds that have a page."""
    return sorted(_pages())


def schema() -> str:
    """Return the JSON Schema of the file that ``backprobe run --findings`` writes."""
    return resources.files(__package__).joinpath(SCHEMA).read_text(encoding="utf-8")


@cache
def _pages() -> dict[str, Any]:
    """Return the Markdown file of each kind of finding, by kind, from all folders of rules."""
    folders = (folder for folder in resources.files(__package__).iterdir() if folder.is_dir())
    files = (file for folder in folders for file in folder.iterdir())
    return {file.name[:-3]: file for file in files if re.fullmatch(r"[a-z-]+\.md", file.name)}
