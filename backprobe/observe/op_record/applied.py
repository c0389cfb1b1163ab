"""Calls of custom functions, as the mode sees them: what each was given, the ops of its forward, its gradients.

A node is made for a custom function before its forward runs, and no other until that is over: gradient mode is off in
it. So the counter of nodes tells which call an op is of, and the node's number which call has run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...records import Applied, Taken
from ...source.definitions import returns_at
from ...source.frames import variables
from ...torch_internals.custom_calls import CustomCalls

#: Numbers of what a function is given are told from those of what its ops are given.
APART = 1000
_grad_on = torch.is_grad_enabled


class Calls:
    """Collects them. `take` and `value_of` are the mode's."""

    def __init__(self, take: Callable[[Any, int], Taken], value_of: Callable[[Any], int | None]) -> None:
        self._take, self._value_of = take, value_of
        self._custom = CustomCalls(variables)
        self._given: dict[int, tuple[Taken | None, ...]] = {}
        self._ops: dict[int, list[int]] = {}
        self.ran: list[Applied] = []

    def op(self, frame: Any, index: int, made: int) -> None:
        """Op `index` is about to run; `made`: the number of the node that was made last."""
        if _grad_on():
            return
        under = self._custom.outermost(frame)
        if under is None:
            return
        if made not in self._ops:
            given = self._custom.given(under)
            self._given[made] = tuple(
                self._take(one, APART + slot) if isinstance(one, torch.Tensor) else None
                for slot, one in enumerate(given)
            )
        self._ops.setdefault(made, []).append(index)

    def node_ran(self, node: Any, came: Any, went: Any, count: int) -> None:
        """A node has run. `count`: the number that the next op will have."""
        of: Any = getattr(type(node), "_forward_cls", None)
        ops = self._ops.pop(node._sequence_nr(), None) if of is not None else None
        if ops is None or of.__module__.partition(".")[0] == "torch":
            return
        values = [tuple(self._value_of(g) if g is not None else None for g in gradients) for gradients in (came, went)]
        given = self._given.pop(node._sequence_nr())
        self.ran.append(Applied(of.__name__, tuple(ops), given, values[0], values[1], count, returns_at(of)))
