"""Finds calls of custom autograd functions among the running frames.

Note [Frames of custom functions]: if ``Function.apply`` is written in Python, its frame is below the ``forward`` of
each custom function. If it is written in C, it has no frame, and the frame of the ``forward`` itself is searched for by
its code object. Two cases are ambiguous. A ``forward`` may be called directly, by that of another class: so its ``ctx``
has to be of a class with this ``forward``. And one code object may serve many functions, as a decorator's wrapper does:
if there is no ``ctx`` (the class has ``setup_context``), the values of its free variables have to match.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from inspect import CO_VARARGS
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

import torch

from . import code_objects

#: The variable of ``Function.apply`` that holds its arguments, if it is written in Python.
ARGUMENTS = "args"
_Function = torch.autograd.Function
_Context = torch.autograd.function.BackwardCFunction


def positional(code: CodeType, local: dict[str, Any]) -> list[Any]:
    """Return the positional arguments of a call of `code`, read from its variables `local`."""
    count = code.co_argcount
    found = [local.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & CO_VARARGS:
        found += local.get(code.co_varnames[count + code.co_kwonlyargcount]) or ()
    return found


def _classes() -> Iterator[type[torch.autograd.Function]]:
    """Yield all custom function classes that exist."""
    left = _Function.__subclasses__()
    for one in left:  # grows as we go
        yield one
        left += one.__subclasses__()


class CustomCalls:
    """Finder of the frames that run a custom function's forward, and thus of the callers behind them.

    It caches by code object.

    :param variables: returns the variables of a frame.
    """

    def __init__(self, variables: Callable[[FrameType], dict[str, Any]]) -> None:
        """Begin with empty caches."""
        self._variables = variables
        #: By id of a code object: the object (kept alive), and functions without a ``ctx`` that use it; ``None``: not a
        #: ``forward``.
        self._functions_by_code: dict[int, tuple[CodeType, list[weakref.ref[FunctionType]] | None]] = {}
        self._class_count = 0

    def innermost(self, frame: FrameType | None) -> Any:
        """Return the innermost frame at or above `frame` that runs a custom function's forward; ``None`` if there is
        none.
        """
        apply = code_objects.FUNCTION_APPLY
        if apply is not None:
            while frame is not None and frame.f_code is not apply:
                frame = frame.f_back
            return frame
        found = self._find_frame(frame)
        if found is None and self._class_count != len(_Function.__subclasses__()):
            self._functions_by_code.clear()  # an ordinary function may have become a new class's forward
            found = self._find_frame(frame)
        return found

    def outermost(self, frame: FrameType | None) -> Any:
        """Return the outermost such frame at or above `frame`; ``None`` if no custom function runs."""
        found = frame = self.innermost(frame)
        while frame is not None and (frame := self.innermost(frame.f_back)) is not None:
            found = frame
        return found

    def arguments_of(self, frame: FrameType) -> list[object]:
        """Return the arguments of the custom function that runs in `frame`, which ``innermost`` or ``outermost`` has
        found.
        """
        local = self._variables(frame)
        if frame.f_code is code_objects.FUNCTION_APPLY:
            return list(local.get(ARGUMENTS, ()))
        found = positional(frame.f_code, local)
        return found[_context_in(found) + 1 :]

    def function_of(self, frame: FrameType, innermost: FrameType) -> tuple[Any, Any]:
        """Return the custom function that runs in the frame `innermost`, and its ``ctx``; each is ``None`` if unknown.

        :param innermost: the frame that ``innermost`` found from `frame`. The ``ctx`` is searched for between the two.
        """
        found: FrameType | None = frame
        while found is not None:
            values: list[Any] = positional(found.f_code, self._variables(found))
            at = _context_in(values)
            if at >= 0:
                return values[at]._forward_cls, values[at]
            found = found.f_back if found is not innermost else None
        is_apply = innermost.f_code is code_objects.FUNCTION_APPLY
        return (self._variables(innermost).get("cls") if is_apply else None), None

    def _find_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame at or above `frame` that runs a custom function's ``forward``; ``None`` without
        one.
        """
        known, forwards = self._functions_by_code, None
        while frame is not None:
            code = frame.f_code
            seen = known.get(id(code))
            if seen is None:
                if forwards is None:
                    forwards = self._collect_forwards()
                    if len(known) > 100_000:  # code objects created all the time, as by exec
                        known.clear()
                seen = known[id(code)] = code, forwards.get(id(code))
            if seen[1] is not None and self._runs_forward(frame, seen[1]):
                return frame
            frame = frame.f_back
        return None

    def _collect_forwards(self) -> dict[int, list[weakref.ref[FunctionType]]]:
        """Return the code of the ``forward`` of all custom functions, by id; for each, the functions without a
        ``ctx``.
        """
        self._class_count = len(_Function.__subclasses__())
        found: dict[int, list[weakref.ref[FunctionType]]] = {}
        for one in _classes():
            code = _code_of(one.forward)
            if code is not None:
                functions_without_ctx = found.setdefault(id(code), [])
                if one.setup_context is not _Function.setup_context and hasattr(one.forward, "__code__"):
                    functions_without_ctx.append(weakref.ref(one.forward))
        return found

    def _runs_forward(self, frame: FrameType, functions_without_ctx: list[weakref.ref[FunctionType]]) -> bool:
        """Return whether `frame` runs the forward of a custom function, not a direct call of the same code."""
        code, local = frame.f_code, self._variables(frame)
        values = positional(code, local)
        at = _context_in(values)
        if at >= 0:
            return _code_of(values[at]._forward_cls.forward) is code
        for function in functions_without_ctx:
            cells = getattr(function(), "__closure__", None) or ()
            if all(local.get(name) is _cell_value(cell) for name, cell in zip(code.co_freevars, cells, strict=False)):
                return True
        return False


def _context_in(values: list[object]) -> int:
    """Return the index of the ``ctx`` in `values`; -1 if there is none.

    Bound arguments of a method or a partial function may precede it.
    """
    return next((at for at, value in enumerate(values) if isinstance(value, _Context)), -1)


def _code_of(forward: object) -> CodeType | None:
    """Return the code object that runs when `forward` is called; ``None`` if it is not Python."""
    while isinstance(forward, functools.partial):
        forward = forward.func
    code = getattr(forward, "__code__", None) or getattr(type(forward).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _cell_value(cell: CellType) -> object:
    """Return the value of a closure cell; ``None`` if it is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
