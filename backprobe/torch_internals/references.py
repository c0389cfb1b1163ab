"""Weak references to tensors, and a search for all live tensors.

A tensor that only C++ references keeps its Python object. On older torch, finding that object does not keep the tensor
alive: it may be freed while it is used, unless ``_fix_weakref`` is called first.
"""

from __future__ import annotations

import gc
import sys
import weakref
from itertools import compress
from typing import Any

import torch


def _holds() -> bool:
    """Return whether a C++ reference to a tensor keeps its Python object alive, so that a weak reference suffices."""
    tensor = torch.empty(2, device="cpu")
    before = sys.getrefcount(tensor)
    view = tensor[:1]  # its base is the tensor
    return view is not None and sys.getrefcount(tensor) > before


class _Fixed(weakref.ref):
    """A weak reference to a tensor that is safe on older torch."""

    __slots__ = ()

    def __new__(cls, tensor: Any) -> _Fixed:
        """Return the same reference for the same tensor, as ``weakref.ref`` does."""
        known = next((r for r in weakref.getweakrefs(tensor) if type(r) is cls), None)
        return known if known is not None else super().__new__(cls, tensor)

    def __call__(self) -> Any:
        tensor = super().__call__()
        if tensor is not None:
            tensor._fix_weakref()
        return tensor


_REFERS = _holds()
tensor_ref: type[weakref.ref[Any]] = weakref.ref if _REFERS else _Fixed


def tensors_alive(generation: int | None = None) -> list[torch.Tensor]:
    """Return all tensors that have a Python object.

    :param generation: only those in this generation of the garbage collector.
    """
    kinds: list[type] = [torch.Tensor]
    for kind in kinds:  # grows as we go
        kinds.extend(kind.__subclasses__())
    objects = gc.get_objects(generation)
    found = list(compress(objects, map(set(kinds).__contains__, map(type, objects))))
    if not _REFERS:
        for tensor in found:
            tensor._fix_weakref()  # type: ignore[attr-defined]
    return found
