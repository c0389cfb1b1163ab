"""Tensors inside nested values: tuples, named tuples, lists, mappings, dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

#: Levels that are looked into.
_DEPTH = 16


def children(value: Any) -> list[tuple[str, Any, Any]]:
    """(path part, key, child) of a container; empty for anything else."""
    if isinstance(value, (tuple, list)):
        fields = getattr(value, "_fields", None)
        return [(f".{fields[i]}" if fields else f"[{i}]", i, v) for i, v in enumerate(value)]
    if isinstance(value, Mapping):  # also model outputs, which are dataclasses too
        return [(f".{k}" if isinstance(k, str) and k.isidentifier() else f"[{k!r}]", k, v) for k, v in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{f.name}", f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    return []


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Path and tensor for each tensor in `value`, in order. Iterative."""
    stack: list[tuple[str, Any, int]] = [(path, value, 0)]
    while stack:
        at, one, depth = stack.pop()
        if isinstance(one, torch.Tensor):
            yield at, one
        elif depth < _DEPTH:
            stack.extend((at + part, child, depth + 1) for part, _, child in reversed(children(one)))


class Swap:
    """Tensors in arguments exchanged for others while a module runs.

    Tuples are made anew. In a list, a mapping or a dataclass, which the module may write into or keep, the tensor is
    exchanged in place and ``undo`` puts it back.
    """

    def __init__(self, change: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
        self._change = change
        self._back: list[tuple[Any, Any, Any, Any]] = []

    def swapped(self, value: Any, path: str, depth: int = 0) -> Any:
        """`value` with its tensors exchanged; itself where nothing is."""
        if isinstance(value, torch.Tensor):
            return self._change(path, value)
        if depth >= _DEPTH:
            return value
        found = [(key, child, self.swapped(child, path + part, depth + 1)) for part, key, child in children(value)]
        changed = [(key, child, new) for key, child, new in found if new is not child]
        if not changed:
            return value
        if isinstance(value, tuple):
            parts = [new for _, _, new in found]
            return type(value)._make(parts) if hasattr(value, "_make") else type(value)(parts)
        if isinstance(value, Mapping) and not isinstance(value, MutableMapping):
            return value
        for key, child, new in changed:
            _put(value, key, new)
            self._back.append((value, key, child, new))
        return value

    def undo(self) -> None:
        while self._back:
            value, key, old, new = self._back.pop()
            if any(child is new for _, at, child in children(value) if at == key):
                _put(value, key, old)


def _put(value: Any, key: Any, new: Any) -> None:
    if isinstance(value, (list, Mapping)):
        value[key] = new  # type: ignore[index]
    else:
        object.__setattr__(value, key, new)  # frozen ones too
