"""Conditions of breakpoints, and the names available to expressions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TypeAlias

import torch

from ..source.frames import variables
from ..torch_internals.measure import shape_of
from . import values
from .breakpoints import Breakpoint
from .stop import Stop

#: A Python expression (``"norm > 10"``, ``"nonfinite"``) or a function of the ``Stop``.
Condition: TypeAlias = str | Callable[[Stop], Any] | None


def holds(point: Breakpoint, stop: Stop) -> bool:
    """Return whether the condition of `point` holds at `stop`. Raises what the condition raises."""
    if point.code is not None:
        with values.looking():
            names = ConditionNames(stop)
            return bool(eval(point.code, names, names))
    if callable(point.when):
        with values.looking():
            return bool(point.when(stop))
    return True


class ConditionNames(dict[str, Any]):
    """The names available to an expression; each is evaluated when it is read.

    Other names are looked up in the user's function that called backward.
    """

    def __init__(self, stop: Stop) -> None:
        """Take the stop at which the expression is evaluated."""
        super().__init__(__builtins__=__builtins__)
        self._stop = stop

    def __missing__(self, name: str) -> Any:
        """Return the value of `name`: at the stop, else in the user's function that called backward.
        :raises KeyError: there is no such name.
        """
        known = NAMES.get(name)
        if known is not None:
            return known(self._stop)
        frame: FrameType | None = sys._getframe(1)
        frames = self._stop.backward.forward.frames
        while frame is not None and not frames.is_user(frame.f_code):
            frame = frame.f_back
        if frame is not None:
            for scope in (variables(frame), frame.f_globals):
                if name in scope:
                    return scope[name]
        raise KeyError(name)


#: Name -> its value at a stop.
NAMES: Mapping[str, Callable[[Stop], object]] = {
    "grads": lambda stop: stop.gradients,
    "norm": lambda stop: values.norm(stop.gradients),
    "nonfinite": lambda stop: values.nonfinite(stop.gradients),
    "shape": lambda stop: next((shape_of(g) for g in stop.gradients if g is not None), None),
    "node": lambda stop: stop.node.name,
    "module": lambda stop: stop.node.module,
    "parameter": lambda stop: stop.node.parameter,
    "seq": lambda stop: stop.node.seq,
    "phase": lambda stop: stop.phase,
    "step": lambda stop: stop.step,
    "stop": lambda stop: stop,
    "torch": lambda stop: torch,
}
