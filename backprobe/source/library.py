"""Library frames between the user's line and an op.

Note [Stacks of libraries]: one line of the user's code, ``model(x)``, may call thousands of ops of a library. The
recorder looks up an op by the frames from the op to the call of its module, each with its instruction. The frames from
there to the user's line are those of the module call, which is part of the key too: the n-th call of a module is made
from the same place in every step (if a library makes it from another place, at the same line of the user, the frames
around the module are those of the first time). All frames are walked and stored once, when an op is new. Ops of one
place share the stack object, so equal ops are compared without looking into it.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType

from ..records import Site
from ..torch_internals import code_objects
from .tracebacks import STAND_IN

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Maximum number of frames that are stored, innermost first.
DEPTH = 100


class Stack:
    """Library frames as code objects and instructions, the innermost first.

    :ivar sites: their source lines, once they have been requested.
    """

    __slots__ = ("sites", "spots")

    def __init__(self, spots: tuple[tuple[CodeType, int], ...]) -> None:
        self.spots = spots
        self.sites: tuple[Site, ...] | None = None

    @property
    def called(self) -> list[tuple[CodeType, int]]:
        """Return the frames that call something, the outermost first, without frames that merely pass calls on."""
        found, op = [], False
        for spot in self.spots:
            code = spot[0]
            if op:  # an op written in Python: its frame is at the line that queries the modes
                op = False
            elif code is code_objects.HANDLE_TORCH_FUNCTION:
                op = True
            elif not _passes_on(code):
                found.append(spot)
        return found[::-1]


def _passes_on(code: CodeType) -> bool:
    """Return whether code only passes calls on: that of modules' ``__call__``, of backprobe and of the
    import system.
    """
    file = code.co_filename
    return file == code_objects.MODULE_FILE or file.startswith((_OURS, "<frozen")) or code.co_name == STAND_IN


class Stacks:
    """Makes stacks of library frames; equal stacks are one object."""

    def __init__(self) -> None:
        #: Keyed by ids of code objects, which the stacks keep alive: the objects' own hash covers all of their code.
        self._known: dict[tuple[int, ...], Stack] = {}

    def between(self, frame: FrameType | None, user: object) -> Stack | None:
        """Return the frames from `frame` to the one just inside `user`; ``None`` if there are none."""
        spots: list[tuple[CodeType, int]] = []
        key: list[int] = []
        while frame is not None and frame is not user and len(spots) < DEPTH:
            spots.append((frame.f_code, frame.f_lasti))
            key += (id(frame.f_code), frame.f_lasti)
            frame = frame.f_back
        if not spots:
            return None
        known = self._known.get(at := tuple(key))
        if known is None:
            if len(self._known) > 100_000:
                self._known.clear()
            known = self._known[at] = Stack(tuple(spots))
        return known
