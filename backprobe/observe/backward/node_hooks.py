"""Hooks for nodes, made once: each is a number that can be called."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .watch import Watch

_clock = time.perf_counter


class Hooks:
    """Makes node hooks that know their node's number, once for each number: a hook is a number that can be called.

    Note [Hooks made once]: making thousands of objects in each backward costs more than the calls: the collector of
    Python's garbage has to look at all of them, again and again. So a hook is made once and serves every graph, and of
    a handle only the two parts that removing needs are kept.
    """

    def __init__(self) -> None:
        #: The watches whose backward is running, innermost last.
        running: list[Watch] = []
        self.running = running

        class After(int):
            __slots__ = ()

            def __call__(self, grad_inputs: Any, grad_outputs: Any) -> None:
                watch = running[-1]
                watch.times.append(_clock())
                watch.order.append(self)
                try:
                    if self in watch.held:
                        watch.waiting.append(grad_inputs)
                        watch.waiting_nodes.append(self)
                        if len(watch.waiting) > 512:
                            watch.flush()
                    else:
                        watch.after(self, grad_inputs, grad_outputs)
                except Exception as error:
                    watch.failed(error, grad_inputs)
                watch.times.append(_clock())

        class Before(int):
            __slots__ = ()

            def __call__(self, grad_outputs: Any) -> None:
                try:
                    running[-1].before(self, grad_outputs)
                except Exception as error:
                    running[-1].failed(error, grad_outputs)

        self._after_type, self._before_type = After, Before
        self._after: list[Any] = []
        self._before: list[Any] = []

    def grow(self, size: int) -> tuple[list[Any], list[Any]]:
        """Hooks for after a node and before one, by number, at least `size` of each."""
        while len(self._after) < size:
            self._after.append(self._after_type(len(self._after)))
            self._before.append(self._before_type(len(self._before)))
        return self._after, self._before
