"""Tensors in the arguments of a module exchanged for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch

from ...torch_internals.structure import DEPTH, Part, parts


def spelled(part: Part) -> str:
    """Format a part of a path: ``[0]``, ``.key``, ``.field``; keys that are identifiers are written like fields."""
    name = part.field or part.key
    return f".{name}" if isinstance(name, str) and name.isidentifier() else f"[{part.key!r}]"


class Swap:
    """Exchanges tensors in the inputs or outputs of a module while it runs.

    Tuples are made anew. In a list, a mapping or a dataclass, which the module may write into or keep, the tensor is
    exchanged in place and ``undo`` puts it back.
    """

    def __init__(self, change: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
        """Take the function from a tensor's path and the tensor to its replacement."""
        self._change = change
        self._back: list[tuple[Any, Any, Any, Any]] = []

    def swapped(self, value: object, path: str, depth: int = 0) -> Any:
        """Return `value` with its tensors replaced; the same object if none was."""
        if isinstance(value, torch.Tensor):
            return self._change(path, value)
        if depth >= DEPTH:
            return value
        found = [
            (part.key, part.value, self.swapped(part.value, path + spelled(part), depth + 1))
            for part in parts(value) or ()
        ]
        changed = [(key, child, new) for key, child, new in found if new is not child]
        if not changed:
            return value
        if isinstance(value, tuple):
            made = [new for _, _, new in found]
            return type(value)._make(made) if hasattr(value, "_make") else type(value)(made)
        if isinstance(value, Mapping) and not isinstance(value, MutableMapping):
            return value
        for key, child, new in changed:
            _put(value, key, new)
            self._back.append((value, key, child, new))
        return value

    def undo(self) -> None:
        """Put the original tensors back, except where something else has replaced them since."""
        while self._back:
            value, key, old, new = self._back.pop()
            if any(part.value is new for part in parts(value) or () if part.key == key):
                _put(value, key, old)


def _put(value: Any, key: Any, new: Any) -> None:
    """Set an element of a list or mapping, or a field of a dataclass."""
    if isinstance(value, (list, Mapping)):
        value[key] = new  # type: ignore[index]
    else:
        object.__setattr__(value, key, new)  # frozen ones too
