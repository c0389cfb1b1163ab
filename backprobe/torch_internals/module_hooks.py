"""Hooks on the calls of all modules, that come and go.

Note [Hooks under the same number]: Dynamo guards the numbers of the hooks that are on all modules, in their order: for
others a compiled model is compiled anew, and after eight times no more. So hooks of ours come back under the numbers
that they had, and in the order of those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

_modules = nn.modules.module


class ModuleHooks:
    """A function before each call of a module, and one after it, also where it raises."""

    def __init__(self, enter: Callable[..., Any], leave: Callable[..., Any]) -> None:
        self._enter, self._leave = enter, leave
        #: Once they have been on: what takes them off, and each.
        self._handles: list[tuple[Any, Callable[..., Any]]] = []
        self._on = False

    def on(self) -> None:
        if self._on:
            return
        self._on = True
        if not self._handles:
            self._handles = [
                (_modules.register_module_forward_pre_hook(self._enter), self._enter),
                (_modules.register_module_forward_hook(self._leave, always_call=True), self._leave),
            ]
            return
        for handle, hook in self._handles:
            _put(handle.hooks_dict_ref(), handle.id, hook)
            for ref in handle.extra_dict_ref:
                _put(ref(), handle.id, True)

    def off(self) -> None:
        self._on = False
        for handle, _ in self._handles:
            handle.remove()


def _put(known: Any, number: int, value: Any) -> None:
    known[number] = value
    for later in [one for one in known if one > number]:
        known.move_to_end(later)
