"""Keeps ``torch.compile`` from compiling our own functions.

Note [Our frames are not compiled]: if code of a compiled function runs in Python after all (its graph broke, or it hit
its recompile limit), Dynamo compiles each Python function called from there. Our handlers would be among them: compiled
for each op until the recompile limit is hit. And they would observe nothing, because compiled code sees ``compiling()``
as true. So the code of all our functions is marked: it runs uncompiled, together with everything that it calls.
Functions that call into the script's code (``dynamo_passthrough``, and the handlers of modes) run uncompiled, but what
they call is compiled as it would be without us. Code that Dynamo traces through a handler is not affected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, TypeVar

import torch

from .code_objects import codes_in

_F = TypeVar("_F", bound=Callable[..., Any])
_eval_frame: Any = getattr(torch._C._dynamo, "eval_frame", None)
_PACKAGE = __name__.partition(".")[0]
#: What most names of a module stand for, and holds no function: most of the time would go into asking them.
_PLAIN = (str, int, float, tuple, frozenset, dict, ModuleType, MemberDescriptorType, type(None))
_HANDLERS = ("__torch_function__", "__torch_dispatch__")


def dynamo_passthrough(function: _F) -> _F:
    """Mark a function that calls what the script called, as a decorator: see Note [Our frames are not compiled]."""
    function.__passes_on__ = True  # type: ignore[attr-defined]
    return function


def leave_alone(code: CodeType, deep: bool = False) -> None:
    """Make Dynamo run `code` uncompiled. `deep`: with everything that it calls."""
    skip, default = _eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.DEFAULT
    _eval_frame.set_code_exec_strategy(code, _eval_frame._FrameExecStrategy(skip, skip if deep else default))


def disable_dynamo() -> None:
    """Mark the functions of all our modules that are loaded by now."""
    if _eval_frame is not None:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            _keep_out_of(name)


@cache
def _keep_out_of(name: str) -> None:
    """Mark the functions of the loaded module `name`, once."""
    module = sys.modules[name]
    for function in _functions(module):
        through = function.__name__ in _HANDLERS or getattr(function, "__passes_on__", False)
        for code in codes_in(function.__code__):
            leave_alone(code, deep=not through)


def _functions(owner: ModuleType | type) -> Iterator[FunctionType]:
    """Yield the functions that are defined in a module or class, including methods and those behind decorators."""
    home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for value in list(vars(owner).values()):
        if isinstance(value, _PLAIN):
            continue
        for one in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "func", "__wrapped__"))):
            if isinstance(one, FunctionType) and one.__module__ == home:
                yield one
            elif isinstance(one, type) and one.__module__ == home and one is not owner:
                yield from _functions(one)
