"""Reusable hooks for nodes: each is a callable integer that knows its node's number."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .node_hook_set import NodeHookSet

_clock = time.perf_counter
#: The most nodes with pending results: they are measured while the processor's caches still hold them.
MAX_PENDING_RESULTS = 128


class Hooks:
    """Makes node hooks once for each node number; a hook is an ``int`` that can be called.

    Note [Hooks made once]: making thousands of objects in each backward costs more than calling them, since Python's
    garbage collector scans all of them again and again. So a hook is made once and serves every graph, and of a handle
    only the two parts that removal needs are kept.
    """

    def __init__(self) -> None:
        """Make the classes of the three kinds of hooks; no backward is running."""
        #: The hook sets whose backward is running, innermost last.
        running: list[NodeHookSet] = []
        self.running = running

        class AfterHook(int):
            """Runs after a node."""

            __slots__ = ()

            def __call__(self, grad_inputs: object, grad_outputs: object) -> None:
                """Measure the results of a node that has just run; note its place in the order, and the time."""
                watch = running[-1]
                watch.times.append(_clock())
                watch.order.append(self)
                try:
                    watch.after(self, grad_inputs, grad_outputs)
                except Exception as error:
                    watch.count_error(error, grad_inputs)
                watch.times.append(_clock())

        class HeldHook(int):
            """Runs after a node whose results are held."""

            __slots__ = ()

            def __call__(self, grad_inputs: object, grad_outputs: object) -> None:
                """Hold the results of a node that has just run; measure all held results if they are many."""
                watch = running[-1]
                times, pending = watch.times, watch.pending
                times.append(_clock())
                watch.order.append(self)
                pending.append(grad_inputs)
                if len(pending) >= MAX_PENDING_RESULTS:
                    try:
                        watch.flush()
                    except Exception as error:
                        watch.count_error(error, grad_inputs)
                times.append(_clock())

        class BeforeHook(int):
            """Runs before a node."""

            __slots__ = ()

            def __call__(self, grad_outputs: object) -> None:
                """Measure the gradients that a node is about to get."""
                try:
                    running[-1].before(self, grad_outputs)
                except Exception as error:
                    running[-1].count_error(error, grad_outputs)

        self._types = AfterHook, HeldHook, BeforeHook
        self._made: tuple[list[Any], list[Any], list[Any]] = [], [], []

    def grow(self, size: int) -> tuple[list[Any], list[Any], list[Any]]:
        """Return hooks that run after a node, after a held node, and before a node.

        There are at least `size` of each, by node number.
        """
        for made, kind in zip(self._made, self._types, strict=True):
            made.extend(map(kind, range(len(made), size)))
        return self._made
