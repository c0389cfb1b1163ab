"""Room on Python's stack for what we put on it.

Note [Room on the stack]: a call of a module has four frames of Python, and five where a hook is on all modules; what we
do at the innermost op takes some more. A model that calls itself, or is nested, as deep as Python's limit allows would
not come to its end under us. So the limit is higher while an outermost module runs whose calls we see, by what is ours,
and what it was again behind it. A script that sets it meanwhile has what it set.
"""

from __future__ import annotations

import sys

#: Frames that are ours for so many of the script's, and at any depth.
EACH, ANY = 4, 64
#: A limit from which on it is none.
NONE = 100_000


class Room:
    """More of it between ``begin`` and ``end``."""

    def __init__(self) -> None:
        #: The script's limit, and ours while there is more room.
        self._script = self._ours = 0

    def begin(self) -> None:
        limit = sys.getrecursionlimit()
        if limit < NONE and limit != self._ours:
            self._script, self._ours = limit, limit + limit // EACH + ANY
            sys.setrecursionlimit(self._ours)

    def end(self) -> None:
        if self._ours and sys.getrecursionlimit() == self._ours:
            try:
                sys.setrecursionlimit(self._script)
            except RecursionError:  # that deep already: at the next end
                return
        self._ours = 0
