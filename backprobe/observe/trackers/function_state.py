"""Finds custom functions that keep state outside ``ctx`` and are applied again before their backward.

Note [Functions that share state]: the source says which functions keep, outside ``ctx``, what their backward reads. If
a backward call reaches a node of such a function, and the function was applied again after it, both calls are kept from
a closely inspected step. When the script has ended, they are made again: Note [State outside of ctx]. So a stack, a
cache by shape or a constant is not reported.
"""

from __future__ import annotations

import io
import warnings
import weakref
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from ...records import FunctionChecked
from ...source.definitions import backward_code
from ...source.frames import variables
from ...source.function_state import state_shared
from ...torch_internals import private
from ...torch_internals.custom_calls import CustomCalls
from ..backward.active_backward import ActiveBackward
from ..backward.layouts import LiveLayout
from ..forward.torch_call_recorder import Op
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .applied_functions import FunctionSample, check_pair, copy_call
from .collective_wait import in_use

#: Maximum number of functions whose source is read, functions that keep state of which calls are kept, and their calls
#: in one step.
MAX_FUNCTIONS, MAX_FOLLOWED, MAX_CALLS = 1000, 8, 64
#: Tensors with more elements are not copied.
MAX_ELEMENTS = 1 << 22
#: Maximum number of times that the next steps are inspected because a function was applied twice in a step that was
#: not.
MAX_REQUESTS = 4


@dataclass
class _Applied:
    """A call of a function in the running step.

    :ivar node: its node, alive if it is part of a graph; ``None`` if it is not known, as with ``setup_context``.
    :ivar key: identifies the call among those that run at the same time.
    :ivar sample: its inputs, detached and not copied.
    """

    node: weakref.ref[Any] | None
    key: tuple[int, ...]
    sample: FunctionSample


class FunctionStateTracker(Tracker):
    """Tracker of custom functions with state outside ``ctx``: Note [Functions that share state]."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether the functions are not checked by ``--check functions`` anyway."""
        return "functions" not in settings.checks

    def __init__(self, context: TrackerContext) -> None:
        """Start without functions."""
        self._context, self._frames = context, context.frames
        self._custom_calls = CustomCalls(variables)
        #: Class of a function -> whether it keeps, outside ``ctx``, what its backward reads.
        self._shares_state: weakref.WeakKeyDictionary[type[Any], bool] = weakref.WeakKeyDictionary()
        #: The functions that do, and how often each had a close inspection requested.
        self._followed: dict[type[Any], int] = {}
        self._layouts: weakref.WeakKeyDictionary[LiveLayout, list[int]] = weakref.WeakKeyDictionary()
        #: The calls of these in the running step, if it is inspected closely.
        self._applied: dict[type[Any], list[_Applied]] = {}
        self._pairs: dict[type[Any], tuple[FunctionSample, FunctionSample, int]] = {}
        self._found: list[FunctionChecked] = []

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the calls of the last step."""
        self._applied.clear()

    def observing_pauses(self) -> None:
        """Forget the calls of the running step."""
        self._applied.clear()

    def op_inspected(self, op: Op) -> None:
        """Keep the arguments of a call of a function that is followed, at its first op."""
        if not self._followed or torch.is_grad_enabled() or op.optimizing:
            return
        frame = self._custom_calls.innermost(op.frame)
        function, ctx = self._custom_calls.function_of(op.frame, frame) if frame is not None else (None, None)
        if frame is None or function not in self._followed or function in self._pairs:
            return
        calls, args = self._applied.setdefault(function, []), self._custom_calls.arguments_of(frame)
        key = (id(ctx),) if ctx is not None else (id(frame), *map(id, args))
        if len(calls) >= MAX_CALLS or (calls and calls[-1].key == key):
            return
        needs = [isinstance(a, torch.Tensor) and a.requires_grad for a in args]
        detached = [a.detach() if isinstance(a, torch.Tensor) else a for a in args]
        stack, spot = self._context.modules.stack, self._frames.spot(frame.f_back)
        sample = FunctionSample(function, detached, needs, spot, stack[-1] if stack else None)
        calls.append(_Applied(weakref.ref(ctx) if ctx is not None else None, key, sample))

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Follow functions in a graph that keep state, and keep pairs of which the second call was too early."""
        graph, custom = running.graph, self._layouts.get(running.live)
        if custom is None:
            custom = self._layouts[running.live] = graph.custom
        nodes: dict[type[Any], list[Any]] = {}
        for i in custom:
            nodes.setdefault(graph.nodes[i]._forward_cls, []).append(graph.nodes[i])
        for function, mine in nodes.items():
            if not self._is_followed(function) or function in self._pairs:
                continue
            calls = self._applied.get(function, ())
            if calls:
                self._keep_pair(function, mine, calls)
            elif len(mine) > 1 and self._followed[function] < MAX_REQUESTS:
                self._followed[function] += 1
                self._context.inspect_until(running.step + 2)

    def _is_followed(self, function: type[Any]) -> bool:
        """Return whether a function of the script keeps state that its backward reads; follow it from now on if so."""
        known = self._shares_state.get(function)
        if known is None:
            if len(self._shares_state) >= MAX_FUNCTIONS or len(self._followed) >= MAX_FOLLOWED:
                return False
            code = backward_code(function)
            is_own = code is not None and self._frames.is_user(code)
            known = self._shares_state[function] = is_own and state_shared(function) is not None
            if known:
                self._followed[function] = 0
        return known

    def _keep_pair(self, function: type[Any], nodes: list[Any], calls: list[_Applied]) -> None:
        """Keep a call whose backward is about to run, and a later call of the function, if there is one."""
        last = calls[-1]
        for call in calls[:-1]:
            node = call.node() if call.node is not None else None
            is_reached = any(node is one for one in nodes) if call.node is not None else len(nodes) > 1
            if is_reached and _is_small(call.sample) and _is_small(last.sample):
                with private.measuring():
                    self._pairs[function] = copy_call(call.sample), copy_call(last.sample), self._context.steps.index
                self._applied.pop(function, None)
                return

    def ended(self) -> None:
        """Check the kept pairs of calls when a script has ended.

        A block of code goes on afterwards, and other processes would have to take part in a collective of a forward.
        What a forward prints was printed when the script called it.
        """
        if not self._context.whole or in_use() or not self._pairs:
            return
        nowhere = io.StringIO()
        with redirect_stdout(nowhere), redirect_stderr(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for first, second, step in self._pairs.values():
                self._found += (replace(one, step=step) for one in check_pair(first, second, self._context))
        self._pairs.clear()

    def records(self) -> tuple[FunctionChecked, ...]:
        """Return a record of each function with state that a second call overwrites."""
        return tuple(self._found)


def _is_small(sample: FunctionSample) -> bool:
    """Return whether the tensors of a call can be copied."""
    tensors = [one for one in sample.args if isinstance(one, torch.Tensor)]
    return all(private.is_plain(one) and not private.is_unsafe_to_read(one) for one in tensors) and (
        sum(one.numel() for one in tensors) <= MAX_ELEMENTS
    )
