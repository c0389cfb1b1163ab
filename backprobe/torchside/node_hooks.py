"""Hooks of ours on many nodes of a call, which go all at once.

Note [Hooks on many nodes]: For each hook that is put on, torch makes a handle, in Python, which takes longer than the
node's own work where tensors are small. What it calls for that, ``Function._register_hook``, is replaced while hooks of
ours are put on. It does for one of anybody else's (of another thread, of a finalizer) what it does ever.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch.autograd import function

_replacing = threading.Lock()


class NodeHooks:
    """Puts hooks on nodes, and takes off what it has put on."""

    def __init__(self) -> None:
        #: Dicts of hooks, each with the key of ours.
        self._put: list[tuple[Any, Any]] = []
        #: Nodes where somebody else had hooks of that kind.
        self.others: set[int] = set()

    def __len__(self) -> int:
        return len(self._put)

    def put(self, hook: Callable[..., Any], wanted: Iterable[tuple[int, Callable[[Any], Any]]]) -> None:
        """Put `hook` on nodes: it is called with the number of the node, and what torch gives to hooks of nodes. A node
        gets only one of each kind from us.

        :param wanted: numbers, each with the ``register_hook`` or ``register_prehook`` of its node.
        """
        place = getattr(function, "_HookMixin", None)
        before = vars(place).get("_register_hook") if place is not None else None
        if not isinstance(before, staticmethod) or not _replacing.acquire(blocking=False):
            self._put_on(hook, wanted)
            return

        def register(hooks: Any, added: Any) -> Any:
            if type(added) is not partial or added.func is not hook:
                return before.__func__(hooks, added)
            if hooks is None:
                hooks = OrderedDict()
            hooks[self] = added
            return hooks, hooks

        try:
            place._register_hook = staticmethod(register)  # type: ignore[union-attr]
            self._put_on(hook, wanted)
        finally:
            place._register_hook = before  # type: ignore[union-attr]
            _replacing.release()

    def _put_on(self, hook: Callable[..., Any], wanted: Iterable[tuple[int, Callable[[Any], Any]]]) -> None:
        keep = self._put.append
        for i, register in wanted:
            handle = register(partial(hook, i))
            hooks, key = (handle, self) if type(handle) is OrderedDict else (handle.hooks_dict_ref(), handle.id)
            keep((hooks, key))
            if len(hooks) > 1:
                self.others.add(i)

    def remove(self) -> None:
        """Take all of them off."""
        while self._put:
            hooks, key = self._put.pop()
            hooks.pop(key, None)
