"""The frames of libraries between the user's line and an op.

Note [Stacks of libraries]: one line of the user's, ``model(x)``, may call thousands of ops of a library. What the eye
looks an op up by has the frames from the op to the call of its module, each with its instruction; the frames from there
to the user's line are those of that call, which is looked up by too: the n-th call of a module is made from the same
place in every step (where a library makes it from another one, at the same line of the user's, the frames around the
module are those of the first time). All of them are walked and noted once, when an op is new; ops of one place share
the stack, so that ops which are the same are compared without a look into it.
"""

from __future__ import annotations

import os
from types import CodeType
from typing import Any

from ..records import Site
from ..torch_internals import code_objects
from .tracebacks import STAND_IN

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: No more frames than these are noted, the innermost ones.
DEPTH = 100


class Stack:
    """Frames of libraries, as code objects and instructions, the innermost first.

    :ivar sites: the lines that they are at, where somebody has asked.
    """

    __slots__ = ("sites", "spots")

    def __init__(self, spots: tuple[tuple[CodeType, int], ...]) -> None:
        self.spots = spots
        self.sites: tuple[Site, ...] | None = None

    @property
    def called(self) -> list[tuple[CodeType, int]]:
        """Those that call something, the outermost first: without what passes calls on, which is nobody's code."""
        found, op = [], False
        for spot in self.spots:
            code = spot[0]
            if op:  # the op itself, where it is written in Python, stands at the line that asks the modes
                op = False
            elif code is code_objects.HANDLE_TORCH_FUNCTION:
                op = True
            elif not _passes_on(code):
                found.append(spot)
        return found[::-1]


def _passes_on(code: CodeType) -> bool:
    file = code.co_filename
    return file == code_objects.MODULE_FILE or file.startswith((_OURS, "<frozen")) or code.co_name == STAND_IN


class Stacks:
    """Makes stacks, each once."""

    def __init__(self) -> None:
        #: By the ids of code objects, which the stacks keep: their own hash goes through all of their code.
        self._known: dict[tuple[int, ...], Stack] = {}

    def between(self, frame: Any, user: Any) -> Stack | None:
        """The frames from `frame` to the one inside `user`'s; ``None`` where there is none."""
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
