"""Reads the records that Dynamo keeps of its compilations and graph breaks."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

from ..basics.torch_texts import MODE_STACK, RECOMPILE_LIMIT

#: A frame of a traceback in torch's messages: file, line, function.
FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
#: The name that Dynamo gives the rest of a function after a graph break.
_RESUMES = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
_ID = re.compile(r"^!?\d+/\d+(_\d+)?: ")

Place = tuple[str, int, str]


@dataclass(frozen=True)
class Compilation:
    """A compilation, or a failed one. All compilations of a function share one number, `frame`.

    :ivar function: its name; empty if torch does not repeat it.
    :ivar after: the line after which execution continues, if this is the rest of a function.
    :ivar guard: the guard that failed, and ``relied`` the lines that created it, outermost first.
    :ivar for_us: the recompilation was caused by a mode of ours that is on now and was off before, or the reverse.
    :ivar failed: why nothing was compiled, and ``failed_at`` the line.
    """

    frame: str
    forward: bool
    function: str
    file: str
    line: int
    after: int | None
    ops: int
    seconds: float
    cached: int
    guard: str
    relied: tuple[Place, ...]
    for_us: bool
    failed: str
    failed_at: Place | None
    limit: bool


@dataclass(frozen=True)
class Broken:
    """A graph break: its reason and the lines that led to it, outermost first."""

    reason: str
    stack: tuple[Place, ...]


class Compilations:
    """Reader of the compilations and graph breaks that are new at each call of ``new``. Torch keeps the last 64.

    :ivar lost: how often compilations were dropped before they were read.
    """

    def __init__(self) -> None:
        """Begin with nothing read: the first ``new`` returns everything that torch still keeps."""
        self._last: object = None
        self._breaks = 0
        self.lost = 0

    def new(self) -> tuple[list[Compilation], list[Broken]]:
        """Return the compilations and graph breaks that Dynamo has recorded since the last call."""
        utils: Any = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return [], []
        noted = utils.get_compilation_metrics() if utils._compilation_metrics else []
        broken = utils.graph_break_reasons
        if len(broken) < self._breaks:  # torch._dynamo.reset() has cleared them
            self._breaks = 0
        if (not noted or noted[-1] is self._last) and len(broken) == self._breaks:
            return [], []
        where = next((i for i in range(len(noted) - 1, -1, -1) if noted[i] is self._last), -1)
        if where < 0 and self._last is not None and len(noted) == utils._compilation_metrics.maxlen:
            self.lost += 1
        fresh, breaks = noted[where + 1 :], broken[self._breaks :]
        self._last, self._breaks = (noted[-1] if noted else self._last), len(broken)
        return [_compilation(one) for one in fresh], [_broken(one) for one in breaks]


def _compilation(noted: Any) -> Compilation:
    """Translate Dynamo's record of a compilation."""
    resumes = _RESUMES.match(noted.co_name or "")
    guard, _, relied = (noted.recompile_reason or "").partition("\nUser stack trace:")
    failed = noted.fail_reason or ""
    at = (noted.fail_user_frame_filename, noted.fail_user_frame_lineno)
    return Compilation(
        frame=(noted.compile_id or "").partition("/")[0],
        forward=noted.is_forward is not False,
        function=resumes[1] if resumes else noted.co_name or "",
        file=noted.co_filename or "",
        line=noted.co_firstlineno or 0,
        after=int(resumes[2]) if resumes else None,
        ops=noted.graph_op_count or 0,
        seconds=(noted.duration_us or 0) / 1e6,
        cached=noted.aotautograd_local_cache_hit_count or 0,
        guard=_ID.sub("", re.split(r"\s+# |\s+\(HINT", guard, maxsplit=1)[0]).strip(),
        relied=_places(relied),
        for_us=MODE_STACK in guard,
        failed=reason_text(failed),
        failed_at=(at[0], at[1], "") if at[0] and at[1] else None,
        limit=RECOMPILE_LIMIT in failed,
    )


def _broken(noted: Any) -> Broken:
    """Translate Dynamo's record of a graph break."""
    return Broken(reason_text(noted.reason), tuple((f.filename, f.lineno or 0, f.name) for f in noted.user_stack))


def _places(text: str) -> tuple[Place, ...]:
    """Return the (file, line, function) of each frame of a traceback in `text`."""
    return tuple((m[1], int(m[2]), m[3].strip()) for m in FRAME.finditer(text))


def reason_text(reason: str) -> str:
    """Return torch's reason for a graph break, without explanations and hints.

    The first lines of nested graph breaks are joined by colons, the last break first.
    """
    parts = re.split(r"\n\n\*\*\* While handling this graph break.*\n+", reason.strip())
    return ": ".join(part.partition("\n")[0].strip() for part in reversed(parts) if part)


def known() -> tuple[str, ...]:
    """Return the torch names that this module reads."""
    return (
        *("compile_id", "co_name", "co_filename", "co_firstlineno", "recompile_reason", "fail_reason"),
        *("fail_user_frame_filename", "fail_user_frame_lineno", "is_forward", "graph_op_count", "duration_us"),
        *("aotautograd_local_cache_hit_count", "graph_break_reasons", "_compilation_metrics", "user_stack"),
    )
