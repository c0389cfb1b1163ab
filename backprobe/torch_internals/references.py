"""Weak references to tensors, a mapping by identity that keeps nothing alive, and a search for all live tensors.

A tensor that only C++ references keeps its Python object. On older torch, finding that object does not keep the tensor
alive: it may be freed while it is used, unless ``_fix_weakref`` is called first.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from itertools import compress
from typing import Any, Generic, TypeVar

import torch

V = TypeVar("V")
#: The size from which on an ``IdentityMap`` drops the entries of freed objects as it grows.
MIN_PRUNED_ENTRIES = 1024


def _holds() -> bool:
    """Return whether a C++ reference to a tensor keeps its Python object alive, so that a weak reference suffices."""
    tensor = torch.empty(2, device="cpu")
    before = sys.getrefcount(tensor)
    view = tensor[:1]  # its base is the tensor
    return view is not None and sys.getrefcount(tensor) > before


class _ReferenceTable:
    """The references to tensors by the ids of the tensors, without keeping a reference alive.

    Note [References without a list]: ``weakref.getweakrefs`` crashes CPython 3.11 if a collection that it starts itself
    frees one of the references that it has just counted. So a reference is found in this table. Two threads that ask
    for the first reference to a tensor at the same moment may get two.
    """

    __slots__ = ("_entries", "_limit")

    def __init__(self) -> None:
        """Begin without references."""
        self._entries: dict[int, weakref.ref[TensorRef]] = {}
        self._limit = MIN_PRUNED_ENTRIES

    def find(self, tensor: torch.Tensor) -> TensorRef | None:
        """Return the reference to `tensor`; ``None`` if there is none."""
        entry = self._entries.get(id(tensor))
        known = entry() if entry is not None else None
        return known if known is not None and weakref.ref.__call__(known) is tensor else None

    def add(self, tensor: torch.Tensor, made: TensorRef) -> None:
        """Add reference `made` to `tensor`; drop the entries of freed references when the table has grown."""
        if len(self._entries) >= self._limit:
            for number, entry in self._entries.copy().items():
                if entry() is None and self._entries.get(number) is entry:
                    self._entries.pop(number, None)
            self._limit = max(MIN_PRUNED_ENTRIES, 2 * len(self._entries))
        self._entries[id(tensor)] = weakref.ref(made)


_references = _ReferenceTable()


class TensorRef(weakref.ref):
    """A weak reference to a tensor; one object for each tensor.

    Note [Swapped tensors]: ``torch.utils.swap_tensors``, and so ``Module.to`` and ``load_state_dict`` of models whose
    parameters are wrapper subclasses, refuses a tensor that has weak references. After a swap a reference to the Python
    object still leads to the same parameter. So that function does not see references of this class; it sees all
    others.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, tensor: torch.Tensor) -> TensorRef:
        """Return the same reference for the same tensor, as ``weakref.ref`` does."""
        known = _references.find(tensor)
        if known is None or type(known) is not cls:
            known = super().__new__(cls, tensor)
            _references.add(tensor, known)
        return known


class _Fixed(TensorRef):
    """A weak reference to a tensor that is safe on older torch."""

    __slots__ = ()

    def __call__(self) -> object:
        """Return the tensor, which is then safe to use; ``None`` if it was freed."""
        tensor = super().__call__()
        if tensor is not None:
            tensor._fix_weakref()
        return tensor


class _OthersReferences:
    """The module ``weakref``, as ``torch.utils.swap_tensors`` sees it: Note [Swapped tensors]."""

    def __getattr__(self, name: str) -> object:
        """Return the attribute of the module ``weakref``."""
        return getattr(weakref, name)

    @staticmethod
    def getweakrefs(tensor: torch.Tensor) -> list[weakref.ref[torch.Tensor]]:
        """Return the weak references to `tensor` that are not backprobe's."""
        collects = gc.isenabled()
        gc.disable()  # because of Note [References without a list]
        try:
            return [one for one in weakref.getweakrefs(tensor) if not isinstance(one, TensorRef)]
        finally:
            if collects:
                gc.enable()


_REFERS = _holds()
tensor_ref: type[TensorRef] = TensorRef if _REFERS else _Fixed
if vars(torch.utils).get("weakref") is weakref:
    torch.utils.weakref = _OthersReferences()  # type: ignore[attr-defined]


class IdentityMap(Generic[V]):
    """A mapping from objects, by identity, to values, which keeps no object alive.

    Python may give the id of a freed object to a new one, which has no value here: Note [Ids and weak references].

    :param ref: makes the weak references: ``tensor_ref`` for tensors.
    """

    __slots__ = ("_entries", "_limit", "_ref")

    def __init__(self, ref: Callable[[Any], weakref.ref[object]] = weakref.ref) -> None:
        """Begin without entries."""
        self._ref, self._limit = ref, MIN_PRUNED_ENTRIES
        self._entries: dict[int, tuple[weakref.ref[object], V]] = {}

    def get(self, key: object) -> V | None:
        """Return the value of the object `key`; ``None`` if it has none."""
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None and entry[0]() is key else None

    def __setitem__(self, key: object, value: V) -> None:
        """Give the object `key` a value; drop the entries of freed objects when the map has grown."""
        if len(self._entries) >= self._limit:
            self._entries = {number: entry for number, entry in self._entries.items() if entry[0]() is not None}
            self._limit = max(MIN_PRUNED_ENTRIES, 2 * len(self._entries))
        self._entries[id(key)] = self._ref(key), value

    def __contains__(self, key: object) -> bool:
        """Return whether the object `key` has a value."""
        entry = self._entries.get(id(key))
        return entry is not None and entry[0]() is key

    def __len__(self) -> int:
        """Return the number of entries, including those of objects that were freed since the last pruning."""
        return len(self._entries)

    def pop(self, key: object) -> V | None:
        """Remove the entry of the object `key`, and return its value; ``None`` if it has none."""
        entry = self._entries.pop(id(key), None)
        return entry[1] if entry is not None and entry[0]() is key else None

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()


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
