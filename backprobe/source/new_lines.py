"""Detects which lines of the user's code ran for the first time since the last scan, at no cost while they run.

Note [What the interpreter leaves behind]: from Python 3.11 on, the interpreter specialises each instruction, in the
code object itself, when it runs, or counts in its cache how often it could not. An instruction that has changed between
two scans has run. It ran for the first time if it was as in a new copy of the code before. So it seems, too, if it was
not specialised, which changes with every run, and had not changed between two earlier scans. A function that was called
too few times to be specialised shows nothing, but its call does, in the calling code. On an older Python nothing is
detected.
"""

from __future__ import annotations

import dis
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from .frames import CodeLocation, Frames
from .line_ops import calls_on
from .module_code import code_of_modules


def _adapted(code: Any) -> bytes:
    """Return the bytes of code as the interpreter has specialised them (Note [What the interpreter leaves behind])."""
    return bytes(code._co_code_adaptive)


#: Whether this Python exposes specialised code.
SHOWS = hasattr(compile("0", "", "eval"), "_co_code_adaptive")
_UNIT = 2
#: The opcode of the units after an instruction in which the interpreter keeps what it knows of it.
_CACHE_OPCODE = dis.opmap.get("CACHE", -1)
#: Opcodes of Python 3.11 for an instruction that is not specialised yet.
_ADAPTIVE_OPCODES = frozenset(
    opcode for opcode, name in enumerate(getattr(dis, "_all_opname", ())) if name.endswith("_ADAPTIVE")
)
#: Maximum number of code objects that are scanned: some scripts make new ones all the time.
MAX_CODE_OBJECTS = 20_000


def has_run(code: CodeType) -> bool | None:
    """Return whether code has run more than a few times; ``None`` if this Python does not show it.

    See Note [What the interpreter leaves behind]. Code that ran a few times may look like a new copy of it.
    """
    return _adapted(code) != _adapted(code.replace()) if SHOWS else None


class FirstRuns:
    """Finds lines that ran for the first time since the last scan, in the user's code and the modules that define it.

    See Note [What the interpreter leaves behind].
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._codes: dict[int, CodeType] = {}
        self._last: dict[int, bytes] = {}
        #: The number of scans; and code -> the first of them in which it had begun to be specialised.
        self._looks = 0
        self._begun: dict[int, int] = {}
        #: Code of which two states were compared: at the first scan it is unknown what had run before.
        self._compared: set[int] = set()
        #: Whether at least one of the lines of the last scan certainly had not run before.
        self.sure = False
        #: Code -> instructions that have ever changed.
        self._ran: dict[int, set[int]] = {}
        self._met = -1
        #: File -> whether it is the user's.
        self._files: dict[str, bool] = {}

    def look(self) -> list[CodeLocation]:
        """Return the lines that ran for the first time since the last scan: one place for each, in code order."""
        self.sure = False
        if not SHOWS:
            return []
        self._gather()
        self._looks += 1
        found: list[CodeLocation] = []
        for key, code in self._codes.items():
            now, last = _adapted(code), self._last.get(key)
            if now == last:
                continue
            self._last[key] = now
            begun = self._begun.setdefault(key, self._looks) if now != code.co_code else self._looks
            if last is not None and last != code.co_code:  # all of the code changes when specialisation begins
                new = self._changed(code, last, now, self._ran.setdefault(key, set()), self._looks > begun + 1)
                found += new
                self.sure = self.sure or (bool(new) and key in self._compared)
                self._compared.add(key)
        return found

    def _changed(self, code: CodeType, last: bytes, now: bytes, ran: set[int], unchanged: bool) -> list[CodeLocation]:
        """Return, for each line, the first instruction that has changed for the first time.

        :param ran: the instructions that had changed before; those that have changed now are added.
        :param unchanged: the others had not changed between two earlier scans.
        """
        lines: dict[int, int] = {}
        places: list[Any] = list(getattr(code, "co_positions")())  # noqa: B009, not in Python 3.10
        plain, new = code.co_code, _adapted(code.replace())
        for at in range(0, min(len(last), len(now)), _UNIT):
            line = places[at // _UNIT][0]
            if at not in ran and last[at : at + _UNIT] != now[at : at + _UNIT] and line is not None:
                ran.add(at)
                if _has_not_run(plain, new, last, at, unchanged):
                    lines.setdefault(line, at)
        return [(code, at) for line, at in lines.items()]

    def _gather(self) -> None:
        """Add code of the user's that was encountered since the last scan, with all functions of the same modules."""
        codes = self._frames.users_codes()
        if len(codes) == self._met:
            return
        self._met = len(codes)
        files = {code.co_filename for code in codes}
        codes += [code for code in code_of_modules(files) if self._is_users(code.co_filename)]
        for code in codes:  # grows as we go
            if len(self._codes) >= MAX_CODE_OBJECTS:
                break
            self._codes.setdefault(id(code), code)
            codes += [c for c in code.co_consts if isinstance(c, CodeType) and id(c) not in self._codes]

    def _is_users(self, file: str) -> bool:
        """Return whether `file` is the user's: a module's names include imported ones."""
        known = self._files.get(file)
        if known is None:
            known = self._files[file] = self._frames.is_users_file(file)
        return known

    def entered(self, spots: list[CodeLocation], frame: FrameType | None, everything: bool) -> list[CodeLocation]:
        """Return `spots`, with the lines of called functions in place of calls that are still running.

        A call is running if `frame` or a frame around it executes its line.

        :param everything: all lines of the running functions are new.
        """
        running = []
        while frame is not None:
            if self._frames.is_user(frame.f_code):
                running.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        new = {self._line(spot) for spot in spots}
        calls = [(called, line) for (called, _), line in pairwise(running) if everything or line in new]
        calling = {line for _, line in calls}
        codes = [code for code, _ in running] if everything else [called for called, _ in calls]
        inside = [(code, begin) for code in dict.fromkeys(codes) for begin, _ in _first_of_lines(code)]
        return [spot for spot in (*spots, *inside) if self._line(spot) not in calling]

    def _line(self, spot: CodeLocation) -> tuple[CodeType, int]:
        """Return the code and the line number of a place."""
        site = self._frames.site(spot)
        return spot[0], site.line if site is not None else 0

    def called_from(self, spots: list[CodeLocation]) -> list[CodeLocation]:
        """Return `spots`, and the lines of the user's functions that are called there, recursively.

        Calls are matched to functions by name.
        """
        found = list(spots)
        named: dict[str, list[CodeType]] = {}
        for code in self._codes.values():
            named.setdefault(code.co_name, []).append(code)
        seen: set[int] = set()
        for code, at in found:  # grows as we go
            site = self._frames.site((code, at))
            for name in calls_on(code.co_filename, site.line if site is not None else 0):
                for called in named.get(name, ()):
                    if id(called) not in seen and called is not code and len(found) < 1000:
                        seen.add(id(called))
                        found += [(called, begin) for begin, _ in _first_of_lines(called)]
        return found


def _has_not_run(plain: bytes, new: bytes, adapted: bytes, at: int, unchanged: bool) -> bool:
    """Return whether the instruction with the unit `at` had not run when the code was `adapted`.

    :param plain: the code without what the interpreter keeps.
    :param new: that of a copy that never ran.
    :param unchanged: it had not changed between two earlier scans.
    """
    while at and plain[at] == _CACHE_OPCODE:
        at -= _UNIT
    cache = at + _UNIT
    if plain[cache : cache + 1] != bytes([_CACHE_OPCODE]):
        return True  # nothing is kept of it
    if adapted[at] not in _ADAPTIVE_OPCODES | {new[at]}:
        return False
    return unchanged or adapted[cache : cache + _UNIT] == new[cache : cache + _UNIT]


def _first_of_lines(code: CodeType) -> list[tuple[int, int]]:
    """Return the first instruction of each line of `code`, and the line."""
    lines = {line: begin for begin, _, line in reversed(list(code.co_lines())) if line is not None}
    return [(begin, line) for line, begin in sorted(lines.items())]
