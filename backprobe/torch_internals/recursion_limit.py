"""Raises Python's recursion limit by the number of frames that we add.

Note [Room on the stack]: a module call has four Python frames, and five if there is a global module hook; our work at
the innermost op takes some more. A model that recurses, or is nested, as deep as Python's limit allows would fail under
us. So the limit is raised by our frames while an observed outermost module runs, and restored afterwards. If the script
sets the limit meanwhile, its value is kept. A backward that runs a backward inside itself has three frames per level,
and up to four times as many if each is stepped.
"""

from __future__ import annotations

import sys
from typing import ClassVar

#: Our frames for each frame of the script, if module calls are observed and if backward calls are stepped; and our
#: frames at any depth.
MODULES, STEPPED, ANY = 0.25, 5.0, 64
#: From this value on, the limit counts as none.
UNLIMITED = 100_000


class Room:
    """A raise of the recursion limit between ``begin`` and ``end``; all instances share one limit.

    :param share: our frames for each frame of the script.
    """

    #: The instances that have begun; the script's limit, and our raised one.
    _open: ClassVar[set[int]] = set()
    _limits: ClassVar[list[int]] = [0, 0]

    def __init__(self, share: float = MODULES) -> None:
        """Take the share; ``begin`` raises the limit."""
        self._share = share

    def begin(self) -> None:
        """Raise Python's recursion limit by the frames that backprobe adds, unless it is high enough already."""
        limit, limits = sys.getrecursionlimit(), self._limits
        self._open.add(id(self))
        script = limits[0] if limit == limits[1] else limit
        ours = script + int(script * self._share) + ANY
        if limit < UNLIMITED and (limit != limits[1] or ours > limit):
            limits[:] = script, ours
            sys.setrecursionlimit(ours)

    def end(self) -> None:
        """End this raise. The last one to end restores the script's limit."""
        self._open.discard(id(self))
        script, ours = self._limits
        if self._open or not ours:
            return
        if sys.getrecursionlimit() == ours:
            try:
                sys.setrecursionlimit(script)
            except RecursionError:  # still that deep: restored at the next end
                return
        self._limits[:] = 0, 0
