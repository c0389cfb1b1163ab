"""Global module hooks that can be removed and restored.

Note [Hooks under the same number]: Dynamo guards on the ids of the global module hooks, in their order: if they change,
a compiled model is recompiled, and after eight times no more. So our hooks are restored under the ids that they had, in
the order of those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

_modules = nn.modules.module


class ModuleHooks:
    """Hooks before and after each module call; the latter run even if the call raises."""

    def __init__(self, enter: Callable[..., None], leave: Callable[..., None]) -> None:
        """Take the functions to call before and after each module call; ``on`` registers them."""
        self._enter, self._leave = enter, leave
        #: After the first registration: the handles, and the hook of each.
        self._handles: list[tuple[RemovableHandle, Callable[..., None]]] = []
        self._on = False

    def on(self) -> None:
        """Register the hooks, or restore them under the ids that they had."""
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
        """Remove the hooks."""
        self._on = False
        for handle, _ in self._handles:
            handle.remove()


def _put(known: Any, number: int, value: object) -> None:
    """Add an entry to an ordered dict of hooks, before the entries with higher ids."""
    known[number] = value
    for later in [one for one in known if one > number]:
        known.move_to_end(later)
