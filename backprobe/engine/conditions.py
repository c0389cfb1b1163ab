"""Conditions of breakpoints, and what an expression can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch

from ..torchside.measure import shape_of
from . import values
from .breakpoints import Breakpoint
from .stop import Stop

#: A Python expression (``"norm > 10"``, ``"nonfinite"``) or a function of the ``Stop``.
Condition: TypeAlias = str | Callable[[Stop], Any] | None


def holds(point: Breakpoint, stop: Stop) -> bool:
    """Whether the condition of `point` holds at `stop`. Raises what the condition raises."""
    if point.code is not None:
        with values.looking():
            return bool(eval(point.code, {"__builtins__": __builtins__}, ConditionNames(stop)))
    if callable(point.when):
        with values.looking():
            return bool(point.when(stop))
    return True


class ConditionNames(Mapping[str, Any]):
    """The names that an expression can use; each is worked out when it is read."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._values: dict[str, Callable[[], Any]] = {
            "grads": lambda: stop.gradients,
            "norm": lambda: values.norm(stop.gradients),
            "nonfinite": lambda: values.nonfinite(stop.gradients),
            "shape": lambda: next((shape_of(g) for g in stop.gradients if g is not None), None),
            "node": lambda: stop.node.name,
            "module": lambda: stop.node.module,
            "parameter": lambda: stop.node.parameter,
            "seq": lambda: stop.node.seq,
            "phase": lambda: stop.phase,
            "stop": lambda: stop,
            "torch": lambda: torch,
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
