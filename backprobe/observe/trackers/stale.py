"""Hooks that read ``.grad`` before the backward that is going on has written it.

N19. Hooks on a leaf run before its accumulator, and before any hook on that node. So that the eye sees what they read,
     a hook of ours is put first on a leaf that has some, for the length of the call; it pushes the eye, and a hook on
     the node pops it. Full backward hooks of modules run inside a node that the eye is pushed for anyway.
"""

from __future__ import annotations

from typing import Any

from ...records import Site, StaleRead
from ...source.frames import Frames
from ...torchside import places, private
from .hooked import MODULE_HOOKS, registered_at


class StaleReads:
    """What was read too early, by the line that reads it."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        #: Leaves of the outermost call that is going on: id -> gradient and its version when it began.
        self._before: dict[int, tuple[int, int]] = {}
        self._handles: list[Any] = []
        self._found: dict[Site, StaleRead] = {}

    def begin(self, leaves: list[Any], push: Any) -> list[Any]:
        """A backward call over `leaves` begins. Those that `push` was put on: what it does is to be undone after."""
        hooked = []
        with private.unseen():
            for leaf in leaves:
                self._before[id(leaf)] = _state(leaf.grad)
                if leaf._backward_hooks and push is not None:
                    hooks = leaf._backward_hooks
                    handle = leaf.register_hook(push)
                    self._handles.append(handle)
                    for at in [at for at in hooks if at != handle.id]:  # the engine calls them as they were put in
                        hooks[at] = hooks.pop(at)
                    hooked.append(leaf)
        return hooked

    def end(self) -> None:
        self._before = {}
        while self._handles:
            self._handles.pop().remove()

    def read(self, tensor: Any, value: Any, frame: Any, name_of: Any, step: int) -> None:
        """``.grad`` of a leaf was read at `frame`."""
        before = self._before.get(id(tensor))
        if before is None or before != _state(value) or len(self._found) >= 20:
            return
        spot, inner = self._frames.spot(frame), None
        under = (places.MODULE_HOOKS_FILE, places.TENSOR_HOOKS_FILE)
        while frame is not None and frame.f_code.co_filename not in under:
            inner = frame if self._frames.is_user(frame.f_code) else inner
            frame = frame.f_back
        site = self._frames.site(spot)
        if site is None or site in self._found or frame is None or inner is None:
            return
        on = "module" if frame.f_code.co_filename == places.MODULE_HOOKS_FILE else "tensor"
        methods = MODULE_HOOKS if on == "module" else ("register_hook",)
        where = registered_at(self._frames, inner.f_code, methods)
        self._found[site] = StaleRead(name_of(tensor), on, site, where, value is None, step)

    def records(self) -> tuple[StaleRead, ...]:
        return tuple(self._found.values())


def _state(grad: Any) -> tuple[int, int]:
    return (0, 0) if grad is None else (id(grad), grad._version)
