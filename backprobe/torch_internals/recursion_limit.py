"""Room on Python's stack for what we put on it.

Note [Room on the stack]: a call of a module has four frames of Python, and five where a hook is on all modules; what we
do at the innermost op takes some more. A model that calls itself, or is nested, as deep as Python's limit allows would
not come to its end under us. So the limit is higher while an outermost module runs whose calls we see, by what is ours,
and what it was again behind it. A script that sets it meanwhile has what it set. A backward that runs a backward inside
itself has three frames a level, and up to four times as many where each is stepped.
"""

from __future__ import annotations

import sys
from typing import ClassVar

#: Frames that are ours for each of the script's, where module calls are seen and where backward calls are stepped; and
#: frames that are ours at any depth.
MODULES, STEPPED, ANY = 0.25, 5.0, 64
#: A limit from which on it is none.
NONE = 100_000


class Room:
    """More of it between ``begin`` and ``end``, of whichever watches: the limit is one for all.

    :param share: frames of ours for each of the script's.
    """

    #: Those that have begun; the script's limit, and ours while there is more room.
    _open: ClassVar[set[int]] = set()
    _limits: ClassVar[list[int]] = [0, 0]

    def __init__(self, share: float = MODULES) -> None:
        self._share = share

    def begin(self) -> None:
        limit, limits = sys.getrecursionlimit(), self._limits
        self._open.add(id(self))
        script = limits[0] if limit == limits[1] else limit
        ours = script + int(script * self._share) + ANY
        if limit < NONE and (limit != limits[1] or ours > limit):
            limits[:] = script, ours
            sys.setrecursionlimit(ours)

    def end(self) -> None:
        self._open.discard(id(self))
        script, ours = self._limits
        if self._open or not ours:
            return
        if sys.getrecursionlimit() == ours:
            try:
                sys.setrecursionlimit(script)
            except RecursionError:  # that deep already: at the next end
                return
        self._limits[:] = 0, 0
