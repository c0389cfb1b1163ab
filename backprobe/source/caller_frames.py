"""Calls of a function as if from another place in the code.

Note [Warnings have the script's place]: torch attributes a warning to the Python frame that called into torch, or to
one a few frames up. While the recorder is on, that frame would be backprobe's: the user's line is lost, and "once for
each place" means once in total. So the recorder calls each function through a stand-in for the calling frame: a
one-line function whose code has the caller's file and line, and whose globals are the caller's own, in which the
warnings module stores what it has shown. A stand-in is made once for each place. Its name distinguishes it from the
caller's own frames.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from ..torch_internals import code_objects
from ..torch_internals.uncompiled import dynamo_passthrough, leave_alone
from .tracebacks import STAND_IN

if TYPE_CHECKING:
    #: A function, its arguments, and a function that calls it with them.
    Function = Callable[..., object]
    Args = tuple[Any, ...]
    Kwargs = dict[str, Any]
    Caller = Callable[[Function, Sequence[object], Mapping[str, object] | None], object]


def _call(func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object] | None) -> object:
    return func(*args, **kwargs) if kwargs else func(*args)


dynamo_passthrough(_call)  # no decorator: line numbers of stand-ins count from the `def`


class StandIns:
    """Makes caller functions, one for each place, that call a function as if from that place."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        #: (Id of the code object, instruction) -> stand-in, and the code object, which keeps the id valid.
        self.made: dict[tuple[int, int], tuple[Caller, CodeType]] = {}

    def of(self, frame: Any) -> Caller:
        """Return a function that calls ``func(*args, **kwargs)``, given the three, as if from the current line of
        `frame`.

        Each place gets one such function (a stand-in), which is kept.
        """
        code = frame.f_code
        if code is code_objects.HANDLE_TORCH_FUNCTION:  # for a function written in Python: its caller is two frames up
            frame = frame.f_back and frame.f_back.f_back
            if frame is None:  # called from C++, without Python frames around it
                return _call
            code = frame.f_code
        key = (id(code), frame.f_lasti)
        made = self.made.get(key)
        return made[0] if made is not None else self._make(frame, key)

    def _make(self, frame: FrameType, key: tuple[int, int]) -> Caller:
        """Make and keep the stand-in for a place; a plain call if the globals of `frame` do not belong to a module."""
        if len(self.made) > self._limit:
            self.made.clear()
        names: dict[str, object] = frame.f_globals
        module = sys.modules.get(str(names.get("__name__", "")))
        made: Caller = _call
        if names is getattr(module, "__dict__", None):  # other dicts may be short-lived, and are not kept alive
            code = _call.__code__.replace(
                co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno - 1, co_name=STAND_IN
            )
            leave_alone(code)
            made = FunctionType(code, names)
        self.made[key] = made, frame.f_code
        return made
