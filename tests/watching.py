"""Helpers that run a function with and without a session, and compare the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector


def watched(settings: Settings | None = None) -> tuple[Session, Collector]:
    collector = Collector()
    return Session(collector, settings or Settings()), collector


def alone_and_watched(make: Callable[[], Callable[[], Any]], rounds: int = 6) -> tuple[list[Any], list[Any], Any]:
    """Call what `make` returns `rounds` times without a session, then with one; return both results and the trace.

    Six rounds have both kinds of steps: the first ones, which are inspected closely, and those after.
    """
    torch.manual_seed(0)
    step = make()
    alone = [step() for _ in range(rounds)]
    alone.append(torch.get_rng_state())
    torch.manual_seed(0)
    step = make()
    session, collector = watched()
    session.start()
    try:
        seen = [step() for _ in range(rounds)]
        seen.append(torch.get_rng_state())
    finally:
        session.stop()
    assert session.error is None, session.error
    return alone, seen, collector.trace(session)


def same(a: Any, b: Any) -> bool:
    """Bitwise equality of nested results; NaN equals NaN."""
    if isinstance(a, torch.Tensor):
        if not (isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype):
            return False
        if a.layout is not torch.strided:
            return same(a.to_dense(), b.to_dense())
        return bool(((a == b) | (a.isnan() & b.isnan() if a.is_floating_point() or a.is_complex() else a == b)).all())
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


class Ops(TorchDispatchMode):
    """A mode of the user's: the names of the ops that reach it, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Calls(TorchFunctionMode):
    """A mode of the user's: the names of the functions of torch that are called under it, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__qualname__", "") or getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))
