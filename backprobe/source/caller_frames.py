"""Calling a function as if from another place in the code.

Note [Warnings have the script's place]: torch takes as the place of a warning the Python frame that called into it, or
one a few frames up. While the eye is on, that frame would be ours: the line is lost, and "once for each place" means
once for all. So the eye calls each function through a stand-in for the frame that called it: a function of one line
whose code has the file and the line, and whose globals are the caller's own, where warnings note what was shown. A
stand-in is made once for each place. It is told apart from the caller's own frames by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from ..torch_internals import code_objects
from ..torch_internals.uncompiled import dynamo_passthrough, leave_alone
from .tracebacks import STAND_IN


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs) if kwargs else func(*args)


dynamo_passthrough(_call)  # not above it: that would be its first line, from which the lines of stand-ins are counted


class StandIns:
    """Makes them, by place."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        #: By id of the code object, which is kept with it, and instruction.
        self.made: dict[tuple[int, int], tuple[Callable[[Any, Any, Any], Any], CodeType]] = {}

    def of(self, frame: Any) -> Callable[[Any, Any, Any], Any]:
        """What calls ``func(*args, **kwargs)``, given the three, from where `frame` is now."""
        code = frame.f_code
        if code is code_objects.HANDLE_TORCH_FUNCTION:  # of a function written in Python: its caller is two frames up
            frame = frame.f_back and frame.f_back.f_back
            if frame is None:  # called from C++, with nothing of Python's around it
                return _call
            code = frame.f_code
        key = (id(code), frame.f_lasti)
        made = self.made.get(key)
        return made[0] if made is not None else self._make(frame, key)

    def _make(self, frame: Any, key: tuple[int, int]) -> Callable[[Any, Any, Any], Any]:
        if len(self.made) > self._limit:
            self.made.clear()
        names: dict[str, Any] = frame.f_globals
        module = sys.modules.get(str(names.get("__name__", "")))
        made: Callable[[Any, Any, Any], Any] = _call
        if names is getattr(module, "__dict__", None):  # others may be short-lived, and are not kept alive
            code = _call.__code__.replace(
                co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno - 1, co_name=STAND_IN
            )
            leave_alone(code)
            made = FunctionType(code, names)
        self.made[key] = made, frame.f_code
        return made
