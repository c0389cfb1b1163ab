"""Calls of custom functions, among the frames that run.

Note [Frames of custom functions]: a torch whose ``Function.apply`` is Python has its frame under the ``forward`` of
    each custom function. Where it is C it leaves none, and the frame of the ``forward`` itself is looked for. Its code
    tells which it is, but for two things. A ``forward`` may be called by hand, by that of another class: so its ``ctx``
    has to be of a class with this ``forward``. And one code may serve many functions, as a decorator's does: where
    there is no ``ctx`` (the class has ``setup_context``), what its free variables hold has to be the same.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from inspect import CO_VARARGS
from types import CodeType
from typing import Any

import torch

from . import code_objects

#: What ``Function.apply`` calls what it is given, where it is Python.
ARGUMENTS = "args"
_Function = torch.autograd.Function
_Context = torch.autograd.function.BackwardCFunction


def positional(code: CodeType, local: dict[str, Any]) -> list[Any]:
    """What the variables `local` of a call of `code` have for its positional arguments."""
    count = code.co_argcount
    found = [local.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & CO_VARARGS:
        found += local.get(code.co_varnames[count + code.co_kwonlyargcount]) or ()
    return found


def _classes() -> Iterator[Any]:
    """All custom functions that there are."""
    left = _Function.__subclasses__()
    for one in left:  # grows as we go
        yield one
        left += one.__subclasses__()


class CustomCalls:
    """Finds the frames under which a custom function's forward runs: who called it is behind. It caches by code object.
    `variables` reads those of a frame."""

    def __init__(self, variables: Callable[[Any], dict[str, Any]]) -> None:
        self._variables = variables
        #: By id of a code object: it, and functions without a ``ctx`` that have it; ``None``: it is no ``forward``.
        self._known: dict[int, tuple[CodeType, list[weakref.ref[Any]] | None]] = {}
        self._count = 0

    def innermost(self, frame: Any) -> Any:
        """At or above `frame`; ``None`` where no custom function runs."""
        apply = code_objects.FUNCTION_APPLY
        if apply is not None:
            while frame is not None and frame.f_code is not apply:
                frame = frame.f_back
            return frame
        found = self._next(frame)
        if found is None and self._count != len(_Function.__subclasses__()):
            self._known.clear()  # a new class may have a forward that was a function like others before
            found = self._next(frame)
        return found

    def outermost(self, frame: Any) -> Any:
        found = frame = self.innermost(frame)
        while frame is not None and (frame := self.innermost(frame.f_back)) is not None:
            found = frame
        return found

    def given(self, frame: Any) -> list[Any]:
        """What the custom function of a frame that was found here was called with."""
        local = self._variables(frame)
        if frame.f_code is code_objects.FUNCTION_APPLY:
            return list(local.get(ARGUMENTS, ()))
        found = positional(frame.f_code, local)
        return found[_context_in(found) + 1 :]

    def _next(self, frame: Any) -> Any:
        known, forwards = self._known, None
        while frame is not None:
            code = frame.f_code
            seen = known.get(id(code))
            if seen is None:
                if forwards is None:
                    forwards = self._forwards()
                    if len(known) > 100_000:  # code that is made anew all the time, as by exec
                        known.clear()
                seen = known[id(code)] = code, forwards.get(id(code))
            if seen[1] is not None and self._is_called(frame, seen[1]):
                return frame
            frame = frame.f_back
        return None

    def _forwards(self) -> dict[int, list[weakref.ref[Any]]]:
        self._count = len(_Function.__subclasses__())
        found: dict[int, list[weakref.ref[Any]]] = {}
        for one in _classes():
            code = _code_of(one.forward)
            if code is not None:
                without = found.setdefault(id(code), [])
                if one.setup_context is not _Function.setup_context and hasattr(one.forward, "__code__"):
                    without.append(weakref.ref(one.forward))
        return found

    def _is_called(self, frame: Any, without: list[weakref.ref[Any]]) -> bool:
        """Note [Frames of custom functions]."""
        code, local = frame.f_code, self._variables(frame)
        values = positional(code, local)
        at = _context_in(values)
        if at >= 0:
            return _code_of(values[at]._forward_cls.forward) is code
        for function in without:
            cells = getattr(function(), "__closure__", None) or ()
            if all(local.get(name) is _held(cell) for name, cell in zip(code.co_freevars, cells, strict=False)):
                return True
        return False


def _context_in(values: list[Any]) -> int:
    """Where the ``ctx`` is among `values`, which begin with what a partial function or a method has; else -1."""
    return next((at for at, value in enumerate(values) if isinstance(value, _Context)), -1)


def _code_of(forward: Any) -> CodeType | None:
    """The code that runs when it is called; ``None`` where that is no Python."""
    while isinstance(forward, functools.partial):
        forward = forward.func
    code = getattr(forward, "__code__", None) or getattr(type(forward).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
