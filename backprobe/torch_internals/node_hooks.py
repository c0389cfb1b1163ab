"""Registers hooks on many nodes at once, and removes them together.

Note [Hooks without handles]: torch creates each hook's entry in Python (``_register_hook``), and a handle that can
remove it, which takes longer than the call of the hook. So while our hooks are registered, our function creates the
entry in the same dict, without a handle, under one key per round. Hooks that other code registers meanwhile (another
thread, a signal handler) are registered torch's way, and if torch does not call our function, its handle is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any

from torch.autograd import function

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

_home: Any = getattr(function, "_HookMixin", None)
_one_at_a_time = Lock()


class NodeHooks:
    """The hooks of one backward call."""

    def __init__(self) -> None:
        """Begin without hooks."""
        #: For each round, the key of its hooks and the dicts that contain them.
        self._rounds: list[tuple[object, list[Any]]] = []
        #: Handles of hooks that torch registered its own way.
        self._handles: list[RemovableHandle] = []
        #: Hooks registered on a node that already had another hook of the same kind.
        self.beside: list[Any] = []

    def __len__(self) -> int:
        """Return the number of hooks that are registered."""
        return len(self._handles) + sum(len(dicts) for _, dicts in self._rounds)

    def put(self, hooks: Iterable[tuple[Callable[[object], object], object]]) -> None:
        """Register a round of hooks, each given with the node's method that registers it; each method at most once."""
        before = vars(_home).get("_register_hook") if _home is not None else None
        if not isinstance(before, staticmethod) or not _one_at_a_time.acquire(blocking=False):
            for register, hook in hooks:
                self._keep(register(hook), hook)
            return
        key, dicts, torchs = object(), list[Any](), before.__func__
        self._rounds.append((key, dicts))
        now: Any = None

        def way(known: Any, hook: object) -> object:
            """Register our hook in the dict `known`, which is made if it is ``None``; other hooks as torch does.
            :returns: the dict, and torch's handle; ``None`` for our hook.
            """
            if hook is not now:
                return torchs(known, hook)
            if known is None:
                known = OrderedDict()
            elif known:
                self.beside.append(hook)
            known[key] = hook
            dicts.append(known)
            return known, None

        _home._register_hook = staticmethod(way)
        try:
            for register, now in hooks:
                handle = register(now)
                if handle is not None:
                    self._keep(handle, now)
        finally:
            now, _home._register_hook = None, before
            _one_at_a_time.release()

    def _keep(self, handle: Any, hook: object) -> None:
        """Keep the handle of a hook that torch registered, and note whether the node had another hook before."""
        self._handles.append(handle)
        if len(handle.hooks_dict_ref()) > 1:
            self.beside.append(hook)

    def remove(self) -> None:
        """Remove all hooks, the last first, and drop the references to them."""
        self.beside = []
        while self._handles:
            self._handles.pop().remove()
        while self._rounds:
            key, dicts = self._rounds.pop()
            for hooks in dicts:
                hooks.pop(key, None)
