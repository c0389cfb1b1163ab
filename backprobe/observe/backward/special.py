"""Functions that mean something besides making nodes: what the eye does when one is called."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from ...source.frames import Frames, variables
from ...source.roots import modules_in_sight
from ...torchside import places, private
from ...torchside.entry_points import EntryPoint, entry_points
from ..forward.eye import Eye
from ..forward.naming import Naming
from ..schedule.steps import StepWatch
from ..trackers.no_gradient import NoGradients
from .calls import BackwardCalls


class Special:
    """Gives the eye a handler for each such function. Each calls the function, and does the same as it."""

    def __init__(
        self, eye: Eye, names: Naming, steps: StepWatch, calls: BackwardCalls, no_gradients: NoGradients
    ) -> None:
        self._eye, self._names, self._steps = eye, names, steps
        self._calls, self._no_gradients = calls, no_gradients
        self._inside = calls.inside
        #: Whether the handlers do more than to call the function, and in which process.
        self.on = False
        self.pid = os.getpid()
        #: A debugger that backward calls go through: called with kind, arguments and what runs the call.
        self.around: Callable[[str, Any, Any, Callable[[], Any]], Any] | None = None
        for entry in entry_points():
            eye.special[entry.function] = self._entry_point(entry)
        eye.special[torch.Tensor.register_hook] = self._register_hook
        eye.special[torch.Tensor.grad.__get__] = self._read_grad  # type: ignore[attr-defined]
        eye.special[torch.Tensor.is_leaf.__get__] = self._read_is_leaf  # type: ignore[attr-defined]
        eye.special[private.set_grad_enabled] = self._set_grad_mode

    def _entry_point(self, entry: EntryPoint) -> Callable[..., Any]:
        def call(func: Any, args: Any, kwargs: Any) -> Any:
            if os.getpid() != self.pid:
                return func(*args, **kwargs)
            if self.around is None:
                return watched(func, args, kwargs)
            return self.around(entry.kind, args, kwargs, lambda: watched(func, args, kwargs))

        def watched(func: Any, args: Any, kwargs: Any) -> Any:
            if not self.on:
                return func(*args, **kwargs)
            return self._calls.run(entry, func, args, kwargs)

        return call

    def _register_hook(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor = args[0] if args else kwargs.get("self")
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
            self._safely(self._calls.hook_registered, tensor.grad_fn)
        return func(*args, **kwargs)

    def _safely(self, note: Callable[..., None], *given: Any) -> None:
        """What fails in noting is ours, not the script's."""
        try:
            note(*given)
        except Exception as error:
            self._eye.on_error(error)

    def _read_grad(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``.grad`` of a tensor that is not a leaf is ``None`` for ever: note who reads it."""
        value = func(*args, **kwargs)
        if self._inside and self.on and args[0].grad_fn is None:
            frame, stale = sys._getframe(2), self._calls.stale
            self._safely(stale.read, args[0], value, frame, self._names.of, self._steps.index)
        elif value is None and self.on:
            self._safely(self._no_gradients.read, args[0], sys._getframe(2))
        return value

    def _read_is_leaf(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An optimizer asks this of every parameter it is given: that is how we see where one is made."""
        frame = sys._getframe(2)
        if frame.f_code is places.ADD_PARAM_GROUP and self.on:
            self._safely(self._optimizer_made, frame)
        return func(*args, **kwargs)

    def _optimizer_made(self, frame: Any) -> None:
        above, frames = frame.f_back, self._names.frames
        optimizer = frame.f_locals.get(places.OPTIMIZER)
        if optimizer is None:
            return
        self._steps.made(optimizer, frames.spot(frame), lambda: [m for _, m in modules_in_sight(above, frames)])

    def _set_grad_mode(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Note where gradient mode was turned off last, and how deep we are in such places."""
        if self.on and threading.get_ident() == self._eye.thread:
            on = bool(args[0] if args else kwargs.get("mode", kwargs.get("enabled", True)))
            self._safely(self._grad_turned, on, sys._getframe(2))
        return func(*args, **kwargs)

    def _grad_turned(self, on: bool, frame: Any) -> None:
        while frame is not None and frame.f_code.co_filename == places.GRAD_MODE_FILE:
            frame = frame.f_back
        if frame is None:
            return
        self._eye.regions.gradient_mode(frame, on)
        cuts = self._eye.cuts
        cuts.library_off = cuts.library_off and not on
        if not on and torch.is_grad_enabled():
            self._grad_turned_off(frame)

    def _grad_turned_off(self, frame: Any) -> None:
        cuts, modules, frames = self._eye.cuts, self._names.modules, self._names.frames
        cuts.library_off = not frames.is_user(frame.f_code)
        if places.is_decorator(frame.f_code):  # @torch.no_grad(): the function's first line is the decorator's
            code = getattr(variables(frame).get(places.DECORATED), "__code__", None)
            if code is not None and frames.is_user(code):
                cuts.library_off = False
                modules.grad_off = Frames.site_of(code.co_filename, code.co_firstlineno, code.co_name)
                return
        if not cuts.library_off:
            modules.grad_off = frames.site(frames.spot(frame))
