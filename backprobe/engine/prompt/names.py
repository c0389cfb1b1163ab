"""Names that Python code at the prompt can use: the variables of the user's frame, the state of the stop, and
assignments.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from ...source.frames import Frames, variables
from ..stop import Stop


class Leave(Exception):
    """Raised by ``exit()`` or ``quit()`` at the prompt. Python's own functions would close standard input too."""


def _leave(code: object = None) -> None:
    """Raise ``Leave``; stands for ``exit`` and ``quit`` at the prompt."""
    raise Leave


class Names:
    """The names available at one stop.

    :param frames: recognises the user's frames.
    """

    def __init__(self, frames: Frames) -> None:
        """Begin without names."""
        self.frames = frames
        self._found: dict[str, object] = {}
        #: Variables assigned at the prompt, kept from stop to stop.
        self._own: dict[str, object] = {}

    def forget(self) -> None:
        """Forget the names of the stop, since they hold gradients: the stop is over, or a gradient has changed."""
        self._found = {}

    def frame(self) -> FrameType | None:
        """Return the user's frame that called backward, if it is in this thread."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self.frames.is_user(frame.f_code):
            frame = frame.f_back
        return frame

    def at(self, stop: Stop, module: str | None) -> dict[str, object]:
        """Return all names that code at the prompt can use: variables, the state of the stop, and earlier assignments.

        :param module: path of the module to which the name ``module`` refers.
        """
        if self._found:
            return self._found
        frame = self.frame()
        names: dict[str, object] = {"exit": _leave, "quit": _leave}
        if frame is not None:
            names.update(frame.f_globals)
            names.update(variables(frame))
        names.update(self._own)
        names.update(stop=stop, node=stop.node, grads=stop.gradients, grad_outputs=stop.grad_outputs, torch=torch)
        names.update(saved=stop.saved, error=stop.error)
        if stop.phase == "after":
            names["grad_inputs"] = stop.grad_inputs
        if module is not None:
            names["module"] = stop.backward.forward.module_at(module)
        self._found = names
        return names

    def evaluate(self, text: str, names: dict[str, object]) -> Any:
        """Return the value of an expression."""
        return eval(compile(text.strip(), "<prompt>", "eval"), names)

    def execute(self, text: str, names: dict[str, object]) -> object:
        """Return the value of an expression; for a statement ``None``, and keep its assignments."""
        try:
            code = compile(text, "<prompt>", "eval")
        except SyntaxError:
            before = dict(names)
            try:
                exec(compile(text, "<prompt>", "exec"), names)
            finally:
                self.keep(before, names)
                before.clear()
            return None
        return eval(code, names)

    def keep(self, before: dict[str, object], names: dict[str, object]) -> None:
        """Keep the variables that differ from `before`."""
        self._own.update({k: v for k, v in names.items() if k not in before or before[k] is not v})
        self._own.pop("__builtins__", None)
