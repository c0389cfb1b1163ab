"""Reports calls of learning rate schedulers, without a frame around them.

Note [Calls of schedulers]: each ``LRScheduler`` enters a context, looked up in its module by name, whenever it computes
its rates: once when it is constructed, and in each step, also one that a ``SequentialLR`` or ``ChainedScheduler``
makes. ``ReduceLROnPlateau`` calls a method when it is constructed, and one to compare each metric with the best one.
While a listener is registered, functions that do the same and report the call stand under these names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau

from .modes import compiling
from .uncompiled import dynamo_passthrough

if TYPE_CHECKING:
    import torch
    from torch.optim.lr_scheduler import LRScheduler

#: The context, given the scheduler, in which rates are computed.
COMPUTES = "_enable_get_lr_call"
#: The method of a plateau scheduler that sets its mode, and the one that compares a metric with the best one.
SETS_MODE = "_init_is_better"
COMPARES = "_is_better" if hasattr(ReduceLROnPlateau, "_is_better") else "is_better"

_FILE: str | None = lr_scheduler.__file__
_context: Any = getattr(lr_scheduler, COMPUTES, None)
_set_mode: Any = ReduceLROnPlateau.__dict__.get(SETS_MODE)
_compare: Any = ReduceLROnPlateau.__dict__.get(COMPARES)


class SchedulerListener(Protocol):
    """Gets the calls, on their thread. Its method must not raise."""

    def scheduler_called(self, scheduler: LRScheduler, metric: float | None, frame: FrameType) -> None:
        """Receive a call: `scheduler` is about to compute rates, or a plateau scheduler is given `metric`, in
        `frame`.
        """


_listening: list[SchedulerListener] = []


def _report(scheduler: LRScheduler, metric: float | None, frame: FrameType) -> None:
    """Pass a call to the listeners."""
    for listener in tuple(_listening):
        listener.scheduler_called(scheduler, metric, frame)


@dynamo_passthrough
def _report_and_enter(scheduler: LRScheduler, *args: object, **kwargs: object) -> object:
    """Report that `scheduler` computes its rates, and return torch's context for that."""
    if not compiling():
        _report(scheduler, None, sys._getframe(1))
    return _context(scheduler, *args, **kwargs)


def _reporting(original: Callable[..., object], is_step: bool) -> Callable[..., object]:
    """Return a method that does what `original` does, and then reports the call."""

    @wraps(original)
    def method(self: LRScheduler, *args: Any, **kwargs: object) -> object:
        """Call the original method, report the call if it is of the expected kind, and return the result."""
        result = original(self, *args, **kwargs)
        metric = args[0] if is_step and args else None
        if isinstance(metric, float) is is_step and not compiling():
            _report(self, metric, sys._getframe(1))
        return result

    return dynamo_passthrough(method)


_report_and_set_mode = _reporting(_set_mode, False) if _set_mode is not None else None
_report_and_compare = _reporting(_compare, True) if _compare is not None else None


def is_code_of_schedulers(code: CodeType) -> bool:
    """Return whether `code` is that of torch's schedulers."""
    return code.co_filename == _FILE


def has_own_step(scheduler: object) -> bool:
    """Return whether a scheduler replaces a method that makes a step: its calls may not be reported."""
    methods = "step", "_update_lr", COMPARES
    owners = (vars(scheduler), *map(vars, type(scheduler).__mro__))
    parts = [owner[name] for owner in owners for name in methods if name in owner]
    home: str = lr_scheduler.__name__
    return any(getattr(one, "__module__", "") != home for one in parts)


def sets_first_rate(scheduler: object) -> bool:
    """Return whether a scheduler, when it is constructed, may set the rate with which a schedule begins."""
    home: str = lr_scheduler.__name__
    built_in = getattr(type(scheduler).__init__, "__module__", "") == home
    return not built_in or isinstance(scheduler, (lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR))


def children_of(scheduler: LRScheduler) -> list[LRScheduler]:
    """Return the schedulers that `scheduler` steps."""
    found = getattr(scheduler, "_schedulers", ())
    return list(found) if isinstance(found, (list, tuple)) else []


def steps_of_state(optimizer: torch.optim.Optimizer) -> float | None:
    """Return how many steps the state of `optimizer` counts for its first parameter that has a state."""
    for state in optimizer.state.values():
        count = state.get("step") if isinstance(state, dict) else None
        if isinstance(count, (int, float)):
            return float(count)
        if count is not None and count.is_cpu and count.numel() == 1:
            return float(count.item())
        return None
    return 0.0


def reports_steps(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether hooks for the steps of all optimizers are called for `optimizer`."""
    return bool(getattr(type(optimizer).step, "hooked", False))


def listen(listener: SchedulerListener) -> None:
    """Pass calls of learning-rate schedulers to `listener` from now on; replaces torch's functions for the first
    one.
    """
    if listener not in _listening:
        _listening.append(listener)
    if getattr(lr_scheduler, COMPUTES, None) is _context is not None:
        setattr(lr_scheduler, COMPUTES, _report_and_enter)
    if ReduceLROnPlateau.__dict__.get(SETS_MODE) is _set_mode is not None:
        setattr(ReduceLROnPlateau, SETS_MODE, _report_and_set_mode)
    if ReduceLROnPlateau.__dict__.get(COMPARES) is _compare is not None:
        setattr(ReduceLROnPlateau, COMPARES, _report_and_compare)


def unlisten(listener: SchedulerListener) -> None:
    """Stop passing calls to `listener`, and restore torch's functions after the last one."""
    if listener in _listening:
        _listening.remove(listener)
    if _listening:
        return
    if getattr(lr_scheduler, COMPUTES, None) is _report_and_enter:
        setattr(lr_scheduler, COMPUTES, _context)
    if ReduceLROnPlateau.__dict__.get(SETS_MODE) is _report_and_set_mode is not None:
        setattr(ReduceLROnPlateau, SETS_MODE, _set_mode)
    if ReduceLROnPlateau.__dict__.get(COMPARES) is _report_and_compare is not None:
        setattr(ReduceLROnPlateau, COMPARES, _compare)
