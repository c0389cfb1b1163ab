"""Reports calls of ``nn.Module.state_dict`` and ``nn.Module.load_state_dict``, without a frame around them.

Note [Calls of state_dict]: both make an ``OrderedDict`` under a name that they look up in their module at each call:
``state_dict`` of an outermost module makes the dict that it returns, and then the dict of its metadata;
``load_state_dict`` a copy of the dict that it was given. While a listener is registered, a function that makes the same
dict stands under this name. So the methods, their signatures, tracebacks and warnings stay as they are. Nothing tests
whether an object is an instance of this name.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from inspect import unwrap
from types import CodeType, FrameType
from typing import Any, Protocol

from torch import nn
from torch.nn.modules import module as nn_module

from .modes import compiling
from .uncompiled import dynamo_passthrough

#: The name under which the methods look up the class of their dicts.
DICT = "OrderedDict"


def _code_of(method: Callable[..., object]) -> CodeType | None:
    """Return the code of a method without its decorators; ``None`` if it is not written in Python."""
    return getattr(unwrap(method), "__code__", None)


_taking, _loading = _code_of(nn.Module.state_dict), _code_of(nn.Module.load_state_dict)


class StateDictListener(Protocol):
    """Gets the calls, on their thread. Its methods must not raise."""

    def taken(self, module: nn.Module, state: object, frame: FrameType) -> None:
        """Receive a call of ``state_dict`` in `frame`: `module` makes `state`, which is still empty."""

    def described(self, state: object, metadata: object) -> None:
        """Receive `metadata`, the dict of the metadata of `state`."""

    def loads(self, module: nn.Module, state: object, assign: bool, strict: bool, frame: FrameType) -> None:
        """Receive a call of ``load_state_dict`` in `frame`: `module` is about to load `state`."""


_listening: list[StateDictListener] = []


@dynamo_passthrough
def _make_and_report(*args: Any, **kwargs: Any) -> object:
    """Return an ``OrderedDict`` of the arguments; report the call if a method of modules makes it."""
    made: Any = OrderedDict(*args, **kwargs)
    if not compiling():
        frame = sys._getframe(1)
        if frame.f_code is _taking:
            _report_state(frame, made)
        elif frame.f_code is _loading:
            _report_load(frame)
        del frame
    return made


def _report_state(frame: FrameType, made: object) -> None:
    """Report the dict `made` by ``state_dict``, which runs in `frame`: the state, or its metadata."""
    values = frame.f_locals
    module, state = values["self"], values.get("destination")
    for listener in tuple(_listening):
        if state is None:
            listener.taken(module, made, frame)
        else:
            listener.described(state, made)


def _report_load(frame: FrameType) -> None:
    """Report the call of ``load_state_dict`` that runs in `frame`."""
    values = frame.f_locals
    for listener in tuple(_listening):
        options = bool(values.get("assign")), bool(values.get("strict", True))
        listener.loads(values["self"], values["state_dict"], *options, frame)


def caller_of(frame: FrameType) -> FrameType | None:
    """Return the frame that calls a method, past overrides that call it for the same module."""
    name, caller = frame.f_code.co_name, frame.f_back
    while caller is not None and caller.f_code.co_name == name:
        caller = caller.f_back
    return caller


def takes_names_as_they_are(module: nn.Module) -> bool:
    """Return whether no hook and no method of a class outside torch can change names while `module` loads."""
    plain = nn.Module.load_state_dict
    return type(module).load_state_dict is plain and not any(
        one._load_state_dict_pre_hooks
        or (
            type(one)._load_from_state_dict is not nn.Module._load_from_state_dict
            and not type(one)._load_from_state_dict.__module__.startswith("torch.nn.modules.")
        )
        for one in nn.Module.modules(module)
    )


def metadata_of(state: object) -> object:
    """Return the dict of the metadata of a state dict, which copies of the dict may share; ``None`` without one."""
    return getattr(state, "_metadata", None)


def listen(listener: StateDictListener) -> None:
    """Pass calls of ``state_dict`` and ``load_state_dict`` to `listener` from now on."""
    if listener not in _listening:
        _listening.append(listener)
    if getattr(nn_module, DICT, None) is OrderedDict:
        setattr(nn_module, DICT, _make_and_report)


def unlisten(listener: StateDictListener) -> None:
    """Stop passing calls to `listener`, and restore torch's name after the last one."""
    if listener in _listening:
        _listening.remove(listener)
    if not _listening and getattr(nn_module, DICT, None) is _make_and_report:
        setattr(nn_module, DICT, OrderedDict)
