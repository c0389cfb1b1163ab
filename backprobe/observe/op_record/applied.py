"""Calls of custom autograd functions in recorded steps: their inputs, the ops of their forward, and their gradients.

PyTorch makes the node of a custom function before its forward runs, and makes no other node until the forward is over,
since gradient mode is off inside. So the sequence number tells to which call an op belongs, and which call has run
backward.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from ...records import Applied, Taken
from ...source.definitions import returns_at
from ...source.frames import variables
from ...torch_internals.custom_calls import CustomCalls

#: Offset of the slots of a function's inputs, so that they differ from the slots of its ops' inputs.
INPUT_SLOT_OFFSET = 1000
_grad_on = torch.is_grad_enabled


class CustomFunctionCalls:
    """Collects the calls. `take` and `value_of` are methods of the dispatch mode."""

    def __init__(self, take: Callable[[Any, int], Taken], value_of: Callable[[Any], int | None]) -> None:
        self._take, self._value_of = take, value_of
        self._custom = CustomCalls(variables)
        self._inputs: dict[int, tuple[Taken | None, ...]] = {}
        self._ops: dict[int, list[int]] = {}
        self.ran: list[Applied] = []

    def op(self, frame: FrameType, index: int, made: int) -> None:
        """Assign op `index`, which is about to run, to the custom function that calls it.

        `made`: the sequence number of the newest node.
        """
        if _grad_on():
            return
        under = self._custom.outermost(frame)
        if under is None:
            return
        if made not in self._ops:
            inputs = self._custom.given(under)
            self._inputs[made] = tuple(
                self._take(one, INPUT_SLOT_OFFSET + slot) if isinstance(one, torch.Tensor) else None
                for slot, one in enumerate(inputs)
            )
        self._ops.setdefault(made, []).append(index)

    def node_ran(self, node: Any, grad_outputs: Any, grad_inputs: Any, count: int) -> None:
        """Note the gradients of a node that has run. `count`: the index that the next op will have."""
        of: Any = getattr(type(node), "_forward_cls", None)
        ops = self._ops.pop(node._sequence_nr(), None) if of is not None else None
        if ops is None or of.__module__.partition(".")[0] == "torch":
            return
        values = [
            tuple(self._value_of(g) if g is not None else None for g in gradients)
            for gradients in (grad_outputs, grad_inputs)
        ]
        inputs = self._inputs.pop(node._sequence_nr())
        self.ran.append(Applied(of.__name__, tuple(ops), inputs, values[0], values[1], count, returns_at(of)))
