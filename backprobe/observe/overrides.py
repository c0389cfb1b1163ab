"""``--override``: run a script with one change, to compare it with the unchanged run.

The override replaces functions of torch: the call of outermost modules, and the functions that set seeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn

from ..basics.errors import BackprobeError
from .changes import check, no_dtype


def change(given: list[str]) -> Callable[[], None]:
    """Apply the overrides, each ``KIND=VALUE``, and return a function that undoes them.

    :raises BackprobeError: there is no such override.
    """
    check(given)
    undo: list[Callable[[], None]] = []
    calls: dict[str, Any] = {}
    for one in given:
        kind, _, value = one.partition("=")
        if kind == "dtype":
            dtype = getattr(torch, value, None)
            if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
                raise no_dtype(value)
            calls["dtype"] = dtype
        elif kind == "device":
            try:
                calls["device"] = torch.device(value)
            except RuntimeError as error:
                raise BackprobeError(f"{value}: {str(error).splitlines()[0]}") from None
        elif kind == "compiled":
            calls["compiled"] = value or "inductor"
        else:
            undo.append(_seeded(int(value)) if kind == "seed" else _threads(int(value)))
    if calls:
        undo.append(_called(**calls))

    def over() -> None:
        """Undo the overrides, the last one first."""
        for one in reversed(undo):
            one()

    return over


def _threads(number: int) -> Callable[[], None]:
    """Set the number of torch's threads, and return a function that restores it."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    return lambda: torch.set_num_threads(before)


def _seeded(seed: int) -> Callable[[], None]:
    """Make every ``torch.manual_seed`` use `seed`, and seed the generators now; return a function that undoes the
    former.
    """
    before = torch.manual_seed

    @wraps(before)
    def manual_seed(_: object) -> torch.Generator:
        """Seed with the overriding seed, whatever seed is given."""
        return before(seed)

    torch.manual_seed = torch.random.manual_seed = manual_seed
    before(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % (1 << 32))

    def undo() -> None:
        """Restore ``torch.manual_seed``."""
        torch.manual_seed = torch.random.manual_seed = before

    return undo


def _called(
    dtype: torch.dtype | None = None, device: torch.device | None = None, compiled: str = ""
) -> Callable[[], None]:
    """Move or compile outermost modules at their first call; return a function that undoes it for later calls.

    Inputs of each call are moved too, and results are moved back.
    """
    before = nn.Module.__call__
    depth = [0]
    known: set[int] = set()
    alive: list[nn.Module] = []

    def moved(value: Any, to: torch.dtype | None, place: torch.device | None) -> Any:
        """Return `value` with its tensors moved to the dtype `to` and the device `place`, also inside containers."""
        if isinstance(value, torch.Tensor):
            if value.is_floating_point() and to is not None:
                value = value.to(to)
            return value.to(place) if place is not None else value
        if type(value) in (list, tuple):
            return type(value)(moved(one, to, place) for one in value)
        if isinstance(value, dict):
            for key in list(value):
                value[key] = moved(value[key], to, place)
        return value

    def call(self: nn.Module, *args: object, **kwargs: object) -> object:
        """Call a module; an outermost one is moved or compiled at its first call. Replaces ``nn.Module.__call__``."""
        if depth[0] or torch.compiler.is_compiling() or not any(True for _ in self.parameters()):
            return before(self, *args, **kwargs)
        if id(self) not in known:
            known.add(id(self))
            alive.append(self)
            if dtype is not None or device is not None:
                self.to(device=device, dtype=dtype)
            if compiled:
                self.compile(backend=compiled)
        first = next((t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)), None)
        was = torch.get_default_dtype() if dtype is not None else None
        home = first.device if device is not None and first is not None else None
        depth[0] += 1
        try:
            out = before(self, *moved(list(args), dtype, device), **moved(dict(kwargs), dtype, device))
        finally:
            depth[0] -= 1
        return moved(out, was, home)

    nn.Module.__call__ = call  # type: ignore[method-assign]

    def undo() -> None:
        """Restore ``nn.Module.__call__``."""
        nn.Module.__call__ = before  # type: ignore[method-assign]

    return undo
