"""Reads the report of Python's ``faulthandler`` on a crashed process: a fault or an abort in C++ code, with its
stack.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from ..basics.errors import BackprobeError
from ..basics.files import inside
from ..basics.untrusted import read_text
from ..records import Site
from . import CRASH

_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')
_OURS = str(Path(__file__).resolve().parents[1])
#: Files whose functions call collective operations.
_CALL = re.compile(r"[/\\]torch[/\\]distributed[/\\](?:distributed_c10d|_functional_collectives)\.py$")
#: Files that define collective operations, and their functions that are only wrappers.
_COLLECTIVES, _WRAPPERS = re.compile(r"[/\\]torch[/\\]distributed[/\\]"), ("wrapper", "<called under backprobe>")
_LIBRARY = re.compile(r"[/\\](?:(?:site|dist)-packages|lib[/\\]python\d+\.\d+)[/\\]|^<frozen ")


def read_crash(part: Path) -> tuple[str, Site | None, str] | None:
    """Return how a process crashed, the script's line in its main thread, and the running collective operation.

    ``None`` if the process did not crash. The operation is empty if there was none. The line has no text: its file is
    not opened.

    :param part: the folder of the process in the run.
    """
    with contextlib.suppress(BackprobeError, OSError):
        text = read_text(inside(part, CRASH), errors="replace")
        fatal = _FATAL.search(text)
        if fatal is not None:
            return fatal[1], *_place(text)
    return None


def _place(text: str) -> tuple[Site | None, str]:
    """Return the script's line and the collective operation in the main thread, which ``faulthandler`` writes last."""
    for stack in reversed(re.split(r"^(?=(?:Current thread|Thread) )", text, flags=re.MULTILINE)):
        frames = [found.groups() for found in map(_FRAME.match, stack.splitlines()) if found is not None]
        mine = next((at for at, (file, *_) in enumerate(frames) if not _is_library(file)), None)
        if mine is not None:
            file, line, function = frames[mine]
            return Site(file, int(line), function), _collective(frames[:mine])
    return None, ""


def _collective(inside: Sequence[tuple[str, ...]]) -> str:
    """Return the name of the collective operation that these calls, the innermost first, are part of; empty if none.

    It is the outermost function of torch.distributed.
    """
    within = any(_CALL.search(file) for file, *_ in inside)  # the operation itself may run in another thread
    if not inside or not (within or _COLLECTIVES.search(inside[0][0])):
        return ""
    ops = [function for file, _, function in inside if _COLLECTIVES.search(file) and function not in _WRAPPERS]
    return ops[-1] if ops else ""


def _is_library(file: str) -> bool:
    """Return whether a file belongs to a library or to backprobe."""
    return _LIBRARY.search(file) is not None or file.startswith(_OURS)
