"""Backward calls as they begin and end: one ``TorchFunctionMode`` that sees them, and their numbers.

Note [Numbers of backward calls]: The engine's number of the running backward (its graph task) tells calls apart, also
    nested ones and those of two threads. A hook on the root's node learns it. A call that the mode does not see (from
    another thread, or from inside the engine) gets its number when its first gradient is edited.
Note [Backwards inside nodes]: The mode is off inside its own handler. A node that runs Python (a custom function, a
    reentrant checkpoint) may call backward again, so the mode is pushed before such a node and popped after it, where
    nodes are hooked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch.overrides import TorchFunctionMode

from ...records import ACCUMULATE_SEQ
from ...torch_internals import autograd_engine, backward_by_name, modes
from ...torch_internals.entry_points import BY_FUNCTION, node_of
from ...torch_internals.uncompiled import disable_dynamo

if TYPE_CHECKING:
    import torch

#: Maximum number of running backward calls whose numbers are remembered.
_MAX_NUMBERS = 256


class CallCounter(TorchFunctionMode):
    """Counts backward calls, and tells those who wait for one.

    :param begun: called with the roots of a call (tensors, gradient edges); gives a function that is called when it is
        over.
    """

    def __init__(self, begun: Callable[[list[object]], Callable[[], None] | None]) -> None:
        """Begin at 0; ``start`` activates the mode."""
        super().__init__()
        self._begun = begun
        self.count = 0
        self.active = False
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}
        #: Calls that begin at leaves, which have no node to hook, before their first edit; innermost last.
        self._fresh: list[int] = []

    def start(self) -> None:
        """Activate the mode on this thread."""
        disable_dynamo()
        self.active = True
        self.__enter__()
        backward_by_name.show(self)

    def stop(self) -> None:
        """Take the mode off this thread's stack, wherever in it it is."""
        self.active = False
        backward_by_name.unshow(self)
        modes.drop_mode(self)

    def number(self) -> int:
        """Return the number of the running backward call, from 1; 0 if a node is called directly.

        See Note [Numbers of backward calls].
        """
        task = autograd_engine.graph_task()
        if task < 0:
            return 0
        with self._lock:
            known = self._numbers.get(task)
            if known is None:
                if self._fresh:
                    known = self._fresh.pop()
                else:
                    self.count += 1
                    known = self.count
                self._note(task, known)
            return known

    def _note(self, task: int, number: int) -> None:
        """Remember the number of the backward call with this graph task id; the oldest are forgotten."""
        self._numbers[task] = number
        if len(self._numbers) > _MAX_NUMBERS:
            del self._numbers[next(iter(self._numbers))]

    def _learn(self, nodes: list[torch.autograd.graph.Node]) -> Callable[[], None]:
        """Count a call that begins at `nodes`, and note the engine's number of it when it runs; see
        Note [Numbers of backward calls]."""
        with self._lock:
            self.count += 1
            number = self.count
            if not nodes:
                self._fresh.append(number)
        known = False

        def note_task(grads: object) -> None:
            """Note the engine's id of the call; used as a prehook of its first nodes."""
            nonlocal known
            with self._lock:
                if not known:
                    known = True
                    self._note(autograd_engine.graph_task(), number)

        handles = [node.register_prehook(note_task) for node in nodes]

        def forget() -> None:
            """Remove the prehooks, and the number if no edit has used it."""
            while handles:
                handles.pop().remove()
            with self._lock:
                if number in self._fresh:
                    self._fresh.remove(number)

        return forget

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func`, and return its result; a backward call is counted and reported before and after."""
        kwargs = kwargs or {}
        entry = None if modes.compiling() or not self.active else BY_FUNCTION.get(func)
        if entry is None:
            return func(*args, **kwargs)
        roots = entry.begins_at(args, kwargs)
        depth = modes.mode_depth()
        starts = [node for node in map(node_of, roots) if node is not None and node._sequence_nr() != ACCUMULATE_SEQ]
        forget = self._learn(starts)
        ended = None
        try:
            ended = self._begun(roots)
            return func(*args, **kwargs)
        finally:
            forget()
            while modes.mode_depth() > depth and modes.top_mode() is self:  # a node that raised was not left
                self.__exit__(None, None, None)
            if ended is not None:
                ended()

    def enter(self, *_: object) -> None:
        """Activate this mode before a node that runs Python (Note [Backwards inside nodes])."""
        self.__enter__()

    def leave(self, *_: object) -> None:
        """Deactivate this mode after a node that runs Python, unless another mode is innermost."""
        if modes.top_mode() is self:
            self.__exit__(None, None, None)
