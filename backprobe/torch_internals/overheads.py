"""What torch itself spends on calling us, where no clock of ours can see it: measured on trivial calls.

Note [Measured beside the script]: nothing here touches what a script could see: no random number, no hook of its
modules, no mode of its own. Each is measured once a process, in a few milliseconds; the backward when the script has
made one: the engine's first call starts its threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import FunctionType, MethodWrapperType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module
from torch.overrides import TorchFunctionMode

from . import modes

_clock = time.perf_counter
_ROUNDS, _CALLS, _NODES = 6, 20, 100


@dataclass(frozen=True)
class Overheads:
    """Seconds that a call takes longer where a mode is on that does nothing: of a function of torch's, of one that is
    written in Python, of a property; and of a module's call with hooks that do nothing."""

    function: float = 1.5e-6
    python: float = 4e-6
    getter: float = 1.5e-6
    module: float = 3e-6

    def of(self, func: Any) -> float:
        kind = type(func)
        return self.python if kind is FunctionType else self.getter if kind is MethodWrapperType else self.function


class _Nothing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def overheads() -> Overheads:
    """Those of forward calls; typical ones where somebody else's mode, profiler or hook would see what is called."""
    return Overheads() if _watched_by_others() or module._has_any_global_hook() else _measured()


def of_node() -> float:
    """Seconds that a node takes longer with a hook that does nothing. Call it when a backward call is over."""
    others = _watched_by_others() or torch.is_anomaly_enabled() or torch.is_inference_mode_enabled()
    return 1e-6 if others else _measured_of_node()


@cache
def _measured() -> Overheads:
    with torch.no_grad():
        tensor, mode = torch.zeros(1, device="cpu"), _Nothing()
        bare, hooked = nn.Identity(), nn.Identity()
        hooked.register_forward_pre_hook(lambda module, args: None)
        hooked.register_forward_hook(lambda module, args, output: None, always_call=True)
        return Overheads(
            _more(tensor.neg, tensor.neg, mode),
            _more(lambda: F.relu(tensor), lambda: F.relu(tensor), mode),
            _more(lambda: tensor.requires_grad, lambda: tensor.requires_grad, mode),
            _more(lambda: bare(tensor), lambda: hooked(tensor), nullcontext()),
        )


@cache
def _measured_of_node() -> float:
    with torch.enable_grad():
        leaf = torch.zeros(1, device="cpu", requires_grad=True)

        def backward(hooked: bool) -> float:
            out, nodes = leaf, []
            for _ in range(_NODES):
                out = out.neg()
                nodes.append(out.grad_fn)
            for node in nodes if hooked else ():
                node.register_hook(lambda grad_inputs, grad_outputs: None)
            return _seconds(lambda: torch.autograd.grad(out, leaf), 1)

        pairs = [(backward(False), backward(True)) for _ in range(3)]
    return max(min(hooked for _, hooked in pairs) - min(plain for plain, _ in pairs), 0.0) / _NODES


def _watched_by_others() -> bool:
    return bool(modes.mode_depth() or modes.in_mode() or modes.profiled() or modes.in_transform())


def _more(alone: Callable[[], Any], under: Callable[[], Any], mode: AbstractContextManager[Any]) -> float:
    """Seconds that `under` takes longer in `mode` than `alone`: the best of some rounds, taken in turn."""
    plain, watched = [], []
    for _ in range(_ROUNDS):
        plain.append(_seconds(alone, _CALLS))
        with mode:
            watched.append(_seconds(under, _CALLS))
    return max(min(watched) - min(plain), 0.0) / _CALLS


def _seconds(call: Callable[[], Any], times: int) -> float:
    begin = _clock()
    for _ in range(times):
        call()
    return _clock() - begin
