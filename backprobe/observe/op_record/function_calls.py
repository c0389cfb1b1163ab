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
    """Collects calls of custom functions with their gradients.

    :param make_input, fingerprint_of: methods of the dispatch mode.
    """

    def __init__(
        self, make_input: Callable[[torch.Tensor, int], Taken], fingerprint_of: Callable[[torch.Tensor], int | None]
    ) -> None:
        """Start without calls."""
        self._make_input, self._fingerprint_of = make_input, fingerprint_of
        self._frame_finder = CustomCalls(variables)
        self._inputs_by_seq: dict[int, tuple[Taken | None, ...]] = {}
        self._ops_by_seq: dict[int, list[int]] = {}
        self.backward_calls: list[Applied] = []

    def add_op(self, frame: FrameType, index: int, newest_seq: int) -> None:
        """Assign op `index`, which is about to run, to the custom function that calls it.

        :param newest_seq: the sequence number of the newest node, which is that of the running custom function.
        """
        if _grad_on():
            return
        function_frame = self._frame_finder.outermost(frame)
        if function_frame is None:
            return
        if newest_seq not in self._ops_by_seq:
            inputs = self._frame_finder.arguments_of(function_frame)
            self._inputs_by_seq[newest_seq] = tuple(
                self._make_input(one, INPUT_SLOT_OFFSET + slot) if isinstance(one, torch.Tensor) else None
                for slot, one in enumerate(inputs)
            )
        self._ops_by_seq.setdefault(newest_seq, []).append(index)

    def record_backward(
        self, node: torch.autograd.graph.Node, grad_outputs: Any, grad_inputs: Any, next_op: int
    ) -> None:
        """Record the call that made `node`, if it is of a user's custom function whose forward ops were recorded.

        The record has the call's ops and inputs, and the gradients that the node received and returned.

        :param next_op: the index that the next recorded op will have.
        """
        function_class: Any = getattr(type(node), "_forward_cls", None)
        ops = self._ops_by_seq.pop(node._sequence_nr(), None) if function_class is not None else None
        if ops is None or function_class.__module__.partition(".")[0] == "torch":
            return
        values = [
            tuple(self._fingerprint_of(g) if g is not None else None for g in gradients)
            for gradients in (grad_outputs, grad_inputs)
        ]
        inputs = self._inputs_by_seq.pop(node._sequence_nr())
        self.backward_calls.append(
            Applied(
                function_class.__name__, tuple(ops), inputs, values[0], values[1], next_op, returns_at(function_class)
            )
        )
