"""Finds custom functions whose backward never reads the gradients that it is given, and returns some of its own.

Note [Gradients that are never read]: the code of such a backward shows that its result does not depend on the incoming
gradients. That is right only where these are one: for a function that returns the loss itself. So a record needs an
incoming gradient with another value, in a call in which the backward returned a gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from ...graphs.reaches import parameters_behind
from ...records import IgnoredGradient
from ...source.definitions import backward_code, ignores_gradients, result_of
from ...torch_internals import private
from ...torch_internals.node_hooks import NodeHooks
from ..backward.active_backward import ActiveBackward
from ..backward.layouts import LiveLayout
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Maximum number of calls of a function that are examined, of nodes in a call, functions that are remembered, and
#: elements that are read.
MAX_CALLS, MAX_NODES, MAX_FUNCTIONS, MAX_ELEMENTS = 16, 16, 1000, 1 << 16
#: Maximum number of records.
MAX_RECORDS = 8


class IgnoredGradientTracker(Tracker):
    """Tracker of custom functions that ignore their gradients: Note [Gradients that are never read]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without functions."""
        self._context, self._names, self._frames = context, context.names, context.frames
        self._handles = NodeHooks()
        #: Class of a function -> the code of its backward if that never reads its gradients.
        self._ignoring: dict[type[Any], CodeType | None] = {}
        self._layouts: WeakKeyDictionary[LiveLayout, list[int]] = WeakKeyDictionary()
        self._examined: Counter[CodeType] = Counter()
        self._found: dict[CodeType, IgnoredGradient] = {}

    def backward_attaching(self, running: ActiveBackward) -> None:
        """Register hooks after the nodes of custom functions whose backward never reads its gradients, in their first
        calls.
        """
        if running.kind == "autograd.grad" or running.inside is not None or len(self._found) >= MAX_RECORDS:
            return
        graph, known = running.graph, self._layouts.get(running.live)
        if known is None:
            known = [i for i in graph.custom if self._code(graph.nodes[i]) is not None][:MAX_NODES]
            self._layouts[running.live] = known
        for at in known:
            code = self._code(graph.nodes[at])
            if code is None or code in self._found or self._examined[code] >= MAX_CALLS:
                continue
            self._examined[code] += 1
            hook = self._context.events.contained(self, self._record_if_ignored, running, at, code)
            self._handles.put([(graph.nodes[at].register_hook, hook)])

    def backward_detaching(self, running: ActiveBackward) -> None:
        """Remove our hooks."""
        self._handles.remove()

    def observing_pauses(self) -> None:
        """Remove our hooks."""
        self._handles.remove()

    def _code(self, node: Any) -> CodeType | None:
        """Return the code of the backward of a custom function's node if it never reads its gradients."""
        function = node._forward_cls
        if function not in self._ignoring:
            if len(self._ignoring) >= MAX_FUNCTIONS:
                return None
            code = backward_code(function)
            ignores = code is not None and self._frames.is_user(code) and ignores_gradients(code)
            self._ignoring[function] = code if ignores else None
        return self._ignoring[function]

    def _record_if_ignored(
        self, running: ActiveBackward, at: int, code: CodeType, returned: Sequence[Any], given: Sequence[Any]
    ) -> None:
        """Record node `at` if it returned a gradient and a gradient that it received is not all ones."""
        if code in self._found or all(grad is None for grad in returned):
            return
        with private.measuring():
            differs = any(_differs_from_one(grad) for grad in given)
        if not differs:
            return
        nodes = running.live.layout(self._names).nodes
        node = nodes[at]
        self._found[code] = IgnoredGradient(
            running.step,
            node.name,
            node.module,
            parameters_behind(nodes, at),
            result_of(code),
            node.site,
            self._frames.site(running.spot),
        )

    def records(self) -> tuple[IgnoredGradient, ...]:
        """Return a record of each function that ignores gradients other than one."""
        return tuple(self._found.values())


def _differs_from_one(grad: Any) -> bool:
    """Return whether a gradient has a value that is neither 1 nor NaN, among the first elements, as far as it can be
    read without waiting.
    """
    if grad is None or not grad.is_cpu or not private.is_readable(grad) or not grad.numel():
        return False
    values = grad.detach().reshape(-1)[:MAX_ELEMENTS]
    return bool(((values != 1) & (values == values)).any())
