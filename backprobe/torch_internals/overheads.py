"""Measures the time that torch itself spends on calling us, which our timers cannot see, on trivial calls.

Note [Measured beside the script]: the measurements touch nothing that is visible to the script: no random number, no
hook of its modules, no mode of its own. Each is made once per process, in a few milliseconds; that of the backward only
after the script has run one, because the engine's first call starts its threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import FunctionType, MethodWrapperType

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module
from torch.overrides import TorchFunctionMode

from . import engine_calls, modes

_clock = time.perf_counter
_ROUNDS, _CALLS, _NODES = 6, 20, 100


@dataclass(frozen=True)
class Overheads:
    """Extra seconds per call while an empty mode is on, and per module call with empty hooks.

    Separately for a built-in torch function, a torch function written in Python, and a property.
    """

    function: float = 1.5e-6
    python: float = 4e-6
    getter: float = 1.5e-6
    module: float = 3e-6

    def of(self, func: object) -> float:
        """Return the extra seconds of a call of `func`."""
        kind = type(func)
        return self.python if kind is FunctionType else self.getter if kind is MethodWrapperType else self.function


class _Nothing(TorchFunctionMode):
    """A function mode that only passes calls on."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func`, and return its result."""
        return func(*args, **(kwargs or {}))


def overheads() -> Overheads:
    """Return the overheads of forward calls.

    Typical values are returned if another mode, profiler or hook would observe the measurement.
    """
    return Overheads() if _watched_by_others() or module._has_any_global_hook() else _measured()


def of_node() -> float:
    """Return the extra seconds of a node with an empty hook. Call it when a backward call is over."""
    others = _watched_by_others() or torch.is_anomaly_enabled() or torch.is_inference_mode_enabled()
    return 1e-6 if others else _measured_of_node()


@cache
def _measured() -> Overheads:
    """Measure the overheads of forward calls. The result is cached."""
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
    """Measure the extra seconds of a node with an empty hook. The result is cached."""
    with torch.enable_grad():
        leaf = torch.zeros(1, device="cpu", requires_grad=True)

        def backward(hooked: bool) -> float:
            """Return the seconds of a backward through a chain of nodes, with empty hooks on them if `hooked`."""
            out, nodes = leaf, []
            for _ in range(_NODES):
                out = out.neg()
                nodes.append(out.grad_fn)
            for node in nodes if hooked else ():
                node.register_hook(lambda grad_inputs, grad_outputs: None)
            return _seconds(lambda: _run_backward(out, leaf), 1)

        pairs = [(backward(False), backward(True)) for _ in range(3)]
    return max(min(hooked for _, hooked in pairs) - min(plain for plain, _ in pairs), 0.0) / _NODES


def _run_backward(out: torch.Tensor, leaf: torch.Tensor) -> None:
    """Run a backward past our own listeners, which would take it for a call of the script."""
    run = engine_calls.own
    if run is None:
        torch.autograd.grad(out, leaf)
    else:
        run((out,), (torch.ones_like(out),), False, False, (leaf,), False, accumulate_grad=False)


def _watched_by_others() -> bool:
    """Return whether a mode, a profiler or a transform is active that would observe the measurement."""
    return bool(modes.mode_depth() or modes.in_mode() or modes.profiled() or modes.in_transform())


def _more(alone: Callable[[], object], under: Callable[[], object], mode: AbstractContextManager[object]) -> float:
    """Return how many seconds longer `under` takes in `mode` than `alone`: the best of several alternating rounds."""
    plain, watched = [], []
    for _ in range(_ROUNDS):
        plain.append(_seconds(alone, _CALLS))
        with mode:
            watched.append(_seconds(under, _CALLS))
    return max(min(watched) - min(plain), 0.0) / _CALLS


def _seconds(call: Callable[[], object], times: int) -> float:
    """Return the seconds that several calls take."""
    begin = _clock()
    for _ in range(times):
        call()
    return _clock() - begin
