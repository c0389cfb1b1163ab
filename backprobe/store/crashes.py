"""What Python's ``faulthandler`` wrote of a process that crashed: a fault or an abort in C++ code, with its stack."""

from __future__ import annotations

import contextlib
import linecache
import re
from pathlib import Path

from ..records import Site
from . import CRASH

_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')
_OURS = str(Path(__file__).resolve().parents[1])
_LIBRARY = re.compile(r"[/\\](?:(?:site|dist)-packages|lib[/\\]python\d+\.\d+)[/\\]|^<frozen ")


def read_crash(part: Path) -> tuple[str, Site | None] | None:
    """How a process crashed, and the line of the script that its main thread was at; ``None`` where it did not."""
    with contextlib.suppress(OSError):
        text = (part / CRASH).read_text(errors="replace")
        fatal = _FATAL.search(text)
        if fatal is not None:
            return fatal[1], _site(text)
    return None


def _site(text: str) -> Site | None:
    """Of the threads, the last that is written is the one that began first."""
    for stack in reversed(re.split(r"^(?=(?:Current thread|Thread) )", text, flags=re.MULTILINE)):
        for found in map(_FRAME.match, stack.splitlines()):
            if found is not None and not _LIBRARY.search(found[1]) and not found[1].startswith(_OURS):
                file, line = found[1], int(found[2])
                return Site(file, line, found[3], linecache.getline(file, line).strip())
    return None
