"""Hooks that read ``.grad`` before the backward that is going on has written it.

N19. Hooks on a leaf run before its accumulator: what such a hook can read of its own tensor is ``None`` or the gradient
     of an earlier backward. That much is read from the hook's code, because no mode of ours is on there. Full backward
     hooks of modules run inside a node that the eye is pushed for, and what they read is compared with what was there
     when the call began.
"""

from __future__ import annotations

import dis
import types
from functools import lru_cache
from typing import Any

import torch
import torch.utils.hooks
from torch import nn

from ..records import Site, StaleRead
from .frames import Frames
from .hooked import MODULE_HOOKS, registered_at

_HOOKS = torch.utils.hooks.__file__
_LOADS = {"LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_CLASSDEREF"}


class StaleReads:
    """What was read too early, by the line that reads it."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        #: Leaves of the outermost call that is going on: id -> gradient and its version when it began.
        self._before: dict[int, tuple[int, int]] = {}
        self._found: dict[Site, StaleRead] = {}

    def begin(self, leaves: list[Any], name_of: Any, step: int) -> None:
        """A backward call over `leaves` begins."""
        self._before = {id(v): _state(v.grad) for v in leaves}
        for leaf in leaves:
            for hook in (leaf._backward_hooks or {}).values():
                site = self._reads(hook, leaf)
                if site is not None and site not in self._found and len(self._found) < 20:
                    where = registered_at(self._frames, hook, ("register_hook",))
                    self._found[site] = StaleRead(name_of(leaf), "tensor", site, where, leaf.grad is None, step)

    def end(self) -> None:
        self._before = {}

    def read(self, tensor: Any, value: Any, frame: Any, name_of: Any, step: int) -> None:
        """``.grad`` of a leaf was read by the user's code at `frame`."""
        before = self._before.get(id(tensor))
        if before is None or before != _state(value) or not self._frames.is_user(frame.f_code):
            return
        site = self._frames.site((frame.f_code, frame.f_lasti))
        if site is None or site in self._found or len(self._found) >= 20:
            return
        while frame is not None and (frame.f_back is None or frame.f_back.f_code.co_filename != _HOOKS):
            frame = frame.f_back
        if frame is not None:
            where = registered_at(self._frames, frame.f_code, MODULE_HOOKS)
            self._found[site] = StaleRead(name_of(tensor), "module", site, where, value is None, step)

    def _reads(self, hook: Any, leaf: Any) -> Site | None:
        """The line of `hook` that reads ``.grad`` of the leaf that it is on."""
        owner = None
        if isinstance(hook, types.MethodType):
            owner, hook = hook.__self__, hook.__func__
        if not isinstance(hook, types.FunctionType) or not self._frames.is_user(hook.__code__):
            return None
        for line, kind, name, path in _reads_of_grad(hook.__code__):
            value = _value(hook, owner, kind, name)
            for attribute in path:
                value = _attribute(value, attribute)
            if value is leaf:
                code = hook.__code__
                return self._frames.site_of(code.co_filename, line, code.co_name)
        return None

    def records(self) -> tuple[StaleRead, ...]:
        return tuple(self._found.values())


def _state(grad: Any) -> tuple[int, int]:
    return (0, 0) if grad is None else (id(grad), grad._version)


@lru_cache(256)
def _reads_of_grad(code: types.CodeType) -> tuple[tuple[int, str, str, tuple[str, ...]], ...]:
    """(line, how it is loaded, variable, attributes on the way) of each ``variable.a.b.grad`` in `code`. An index is an
    attribute of its own: ``"[0]"``."""
    found = []
    kind = name = ""
    path: list[str] = []
    line, constant = code.co_firstlineno, None
    for at in dis.get_instructions(code):
        line = at.starts_line if isinstance(at.starts_line, int) and at.starts_line is not True else line
        line = getattr(at, "line_number", None) or line
        if at.opname in _LOADS:
            kind, name, path, constant = at.opname, str(at.argval), [], None
        elif at.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            constant = at.argval
        elif at.opname == "BINARY_SUBSCR" or (at.opname == "BINARY_OP" and at.argrepr == "[]"):
            path.append(f"[{constant!r}]")
        elif at.opname == "LOAD_ATTR" and at.argval == "grad":
            if name:
                found.append((line, kind, name, tuple(path)))
            name = ""
        elif at.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(str(at.argval))
        elif at.opname not in ("CACHE", "PRECALL", "RESUME", "COPY_FREE_VARS", "NOP", "PUSH_NULL", "EXTENDED_ARG"):
            name = ""
    return tuple(found)


def _value(function: Any, owner: Any, kind: str, name: str) -> Any:
    """What a variable of `function` stands for when it is called, as far as that is known before."""
    code = function.__code__
    if kind == "LOAD_GLOBAL" or kind == "LOAD_NAME":
        return function.__globals__.get(name)
    if name in code.co_freevars and function.__closure__:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:  # not bound yet
            return None
    arguments = code.co_varnames[: code.co_argcount]
    if owner is not None and arguments and arguments[0] == name:
        return owner
    defaults = dict(zip(reversed(arguments), reversed(function.__defaults__ or ()), strict=False))
    return defaults.get(name, (function.__kwdefaults__ or {}).get(name))


def _attribute(value: Any, name: str) -> Any:
    """An attribute or item, where reading it runs no code of the user's."""
    if name.startswith("["):
        key = name[1:-1]
        if isinstance(value, nn.Module):
            return value._modules.get(key.strip("'"))
        if type(value) is dict:
            return next((v for k, v in value.items() if repr(k) == key), None)
        if type(value) in (list, tuple) and key.lstrip("-").isdigit() and -len(value) <= int(key) < len(value):
            return value[int(key)]
        return None
    if isinstance(value, nn.Module):
        for held in (value._parameters, value._modules, value.__dict__):
            if name in held:
                return held[name]
        return None
    return getattr(value, "__dict__", {}).get(name)
