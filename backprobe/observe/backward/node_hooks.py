"""Hooks for nodes, made once: each is a number that can be called."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .node_hook_set import NodeHookSet

_clock = time.perf_counter
#: Nodes whose results wait at one time: they are measured while the processor's caches have them.
WAITING = 128


class Hooks:
    """Makes node hooks that know their node's number, once for each number: a hook is a number that can be called.

    Note [Hooks made once]: making thousands of objects in each backward costs more than the calls: the collector of
    Python's garbage has to look at all of them, again and again. So a hook is made once and serves every graph, and of
    a handle only the two parts that removing needs are kept.
    """

    def __init__(self) -> None:
        #: The watches whose backward is running, innermost last.
        running: list[NodeHookSet] = []
        self.running = running

        class After(int):
            __slots__ = ()

            def __call__(self, grad_inputs: Any, grad_outputs: Any) -> None:
                watch = running[-1]
                watch.times.append(_clock())
                watch.order.append(self)
                try:
                    watch.after(self, grad_inputs, grad_outputs)
                except Exception as error:
                    watch.failed(error, grad_inputs)
                watch.times.append(_clock())

        class Held(int):
            """After a node whose results wait."""

            __slots__ = ()

            def __call__(self, grad_inputs: Any, grad_outputs: Any) -> None:
                watch = running[-1]
                times, waiting = watch.times, watch.waiting
                times.append(_clock())
                watch.order.append(self)
                waiting.append(grad_inputs)
                if len(waiting) >= WAITING:
                    try:
                        watch.flush()
                    except Exception as error:
                        watch.failed(error, grad_inputs)
                times.append(_clock())

        class Before(int):
            __slots__ = ()

            def __call__(self, grad_outputs: Any) -> None:
                try:
                    running[-1].before(self, grad_outputs)
                except Exception as error:
                    running[-1].failed(error, grad_outputs)

        self._types = After, Held, Before
        self._made: tuple[list[Any], list[Any], list[Any]] = [], [], []

    def grow(self, size: int) -> tuple[list[Any], list[Any], list[Any]]:
        """Hooks for after a node, for after one whose results wait, and for before one, by number, at least `size` of
        each."""
        for made, kind in zip(self._made, self._types, strict=True):
            made.extend(map(kind, range(len(made), size)))
        return self._made
