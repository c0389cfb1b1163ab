"""Hooks around each step of every optimizer, for trackers that need them in fast-path steps, too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.optim import optimizer as optim

from ...torch_internals.modes import compiling, disable_function_modes

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle

    from ..events import Events
    from ..tracker import Tracker

#: A function that is given an optimizer before or after its step.
StepFunction = Callable[[Any], None]


class StepHooks:
    """Calls functions of a tracker before and after each step of every optimizer, on the thread that attached it.

    The hooks stay while observing pauses, as those of ``StepWatch`` do, which pauses and removes them: a hook of an
    optimizer may pause observing, and torch is iterating over all of them then.
    """

    def __init__(
        self, owner: Tracker, events: Events, before: StepFunction | None = None, after: StepFunction | None = None
    ) -> None:
        """Prepare; ``attach`` registers the hooks.

        :param owner: the tracker to which errors are attributed.
        :param before, after: called with the optimizer before and after each step; ``None`` for neither.
        """
        self._owner, self._events = owner, events
        self._functions = before, after
        self._handles: list[RemovableHandle] = []
        self._is_paused = True
        self._thread = threading.get_ident()

    def attach(self) -> None:
        """Register the hooks, or resume calling the functions; the current thread counts from now on."""
        self._thread, self._is_paused = threading.get_ident(), False
        if not self._handles:
            before, after = self._functions
            self._handles += [optim.register_optimizer_step_pre_hook(self._before)] if before is not None else []
            self._handles += [optim.register_optimizer_step_post_hook(self._after)] if after is not None else []

    def pause(self) -> None:
        """Call the functions no more until ``attach``; the hooks stay."""
        self._is_paused = True

    def remove(self) -> None:
        """Remove the hooks."""
        self.pause()
        while self._handles:
            self._handles.pop().remove()

    def _before(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Call the function before a step, outside of compilation. A hook of every optimizer."""
        if not compiling():  # Dynamo traces this function
            self._call(self._functions[0], optimizer)

    def _after(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Call the function after a step, outside of compilation. A hook of every optimizer."""
        if not compiling():
            self._call(self._functions[1], optimizer)

    def _call(self, function: StepFunction | None, optimizer: torch.optim.Optimizer) -> None:
        """Call a function of the tracker with an optimizer, on the thread that attached the hooks.

        A function mode of the user does not see what it reads of tensors. A sample of the calls is timed. Errors are
        counted.
        """
        if function is None or self._is_paused or threading.get_ident() != self._thread:
            return
        own = self._events.own
        own.step_hooks.left -= 1
        mark = own.mark() if own.step_hooks.left <= 0 else None
        try:
            with disable_function_modes():
                function(optimizer)
        except Exception as error:
            self._events.fault(self._owner, error)
        if mark is not None:
            own.often(own.step_hooks, mark, 0.0, False)
