"""The memory that the nodes of a graph keep for backward: each storage once, with the nodes that saved it.

Note [Nothing is unpacked]: Unpacking runs user code, and a checkpoint computes again.
Note [Who holds a storage]: A storage is held by others if it has more users than the graph explains (the tensors that
    the slots hold, their bases, and the Python object of the storage), or if one of these tensors has more references
    from Python than one that a graph alone holds.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..basics.torch_texts import COPY_SLICES
from ..torch_internals import checkpoints, modes, saved_by_nodes, storage_ids
from ..torch_internals.structure import tensors_in

#: Maximum depth of nesting that is searched in hook results and ``ctx`` attributes.
_DEPTH = 4

#: Torch's names of a node's saved outputs, with the number of the output if there are several.
RESULTS = re.compile(r"(?:result(\d*)|out|output|values|[LQRSU]|LU|Vh|eigenvalues|eigenvectors|log_?sumexp)")


@dataclass(frozen=True)
class Elsewhere:
    """Memory that a policy has moved elsewhere: its identity, the policy in words, and its original size."""

    key: int
    policy: str
    nbytes: int


class StandIn(ABC):
    """The object that one of our saved-tensor hooks stores in place of a tensor; lists its contents."""

    __slots__ = ()

    @abstractmethod
    def contents(self) -> Iterator[Any]:
        """Yield its contents: tensors, other stand-ins, ``Elsewhere``, or objects packed by another hook."""


class Found:
    """A storage, and the nodes that saved it."""

    __slots__ = (
        *("contained", "dtype", "first", "hidden", "keep", "name", "own", "packed"),
        *("savers", "shape", "storage", "tensors", "views"),
    )

    def __init__(
        self, storage: torch.UntypedStorage, first: int, name: str, tensor: torch.Tensor, packed: bool
    ) -> None:
        """Start with the first tensor that was found on a storage. `first`: the node that saved it under `name`."""
        self.storage, self.first, self.name, self.packed = storage, first, name, packed
        self.shape, self.dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        self.tensors, self.views = 0, 0
        self.savers: set[int] = set()
        #: (node, output) pairs for results that the node itself saved: such a tensor does not name its creator.
        self.own: set[tuple[int, int]] = set()
        #: The tensors that explain its users (Note [Who holds a storage]), by identity.
        self.keep: dict[int, torch.Tensor] = {}
        #: Those of ``keep`` that a Python object holds for the graph, by identity.
        self.contained: set[int] = set()
        #: Further users that cannot be listed.
        self.hidden = 0

    def add(self, node: int, name: str, tensor: torch.Tensor, contained: bool) -> None:
        """Add a saved tensor on this storage. `contained`: a Python object holds it for the graph."""
        self.tensors += 1
        result = RESULTS.fullmatch(name)
        if result is not None:
            self.own.add((node, int(result[1] or 0)))
        self.savers.add(node)
        self.keep[id(tensor)] = tensor
        if contained:
            self.contained.add(id(tensor))
        base = tensor._base if tensor._is_view() else None
        whole = tensor.numel() * tensor.element_size() == self.storage.nbytes()
        self.views += base is not None or not whole or not tensor.is_contiguous()
        if base is not None:
            self.keep[id(base)] = base

    def references(self, key: int) -> int:
        """Return the number of Python references to one of the tensors of ``keep``."""
        return sys.getrefcount(self.keep[key])

    def referred(self, alone: tuple[int, int]) -> bool:
        """Return whether a tensor has more Python references than the graph explains.

        :param alone: the references to a tensor that only a node holds, and to one that a Python container holds for a
            node.
        """
        return any(self.references(key) > alone[key in self.contained] for key in self.keep)


def pieces(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """Return the strided tensors that a tensor consists of; ``None`` if unknown."""
    if modes.is_wrapped(tensor):
        return None
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is not None:
        found: list[torch.Tensor] = []
        for name in tensor.__tensor_flatten__()[0]:  # type: ignore[operator]
            part = getattr(tensor, name)
            if not isinstance(part, torch.Tensor):  # a distributed tensor's mesh
                continue
            inner = pieces(part)
            if inner is None:
                return None
            found += inner
        return found
    layout = tensor.layout
    if layout is torch.strided:
        return None if tensor.is_nested else [tensor]
    if layout is torch.sparse_coo:
        return storage_ids.sparse_parts(tensor)
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return None


class Storages:
    """Collects the memory that nodes keep.

    :ivar found: by ``storage_ids.storage_key``.
    :ivar placed: policy in words -> memory that it has moved elsewhere -> (bytes, saved tensors on it).
    :ivar freed: number of nodes whose saved tensors a backward has freed.
    :ivar unknown: (what, why) -> count of cases whose memory cannot be determined.
    """

    def __init__(self) -> None:
        """Start without storages."""
        self.found: dict[int, Found] = {}
        self.placed: dict[str, dict[int, tuple[int, int]]] = {}
        self.unknown: dict[tuple[str, str], int] = {}
        self.freed = 0
        self._frames_seen: set[int] = set()

    def add(self, i: int, node: torch.autograd.graph.Node) -> None:
        """Add the saved tensors of `node`, number `i`. Call in the order in which nodes saved their tensors."""
        if not saved_by_nodes.lists_its_tensors(node):
            self._lost(node.name(), "a node of a C++ extension, which does not say what it keeps")
            return
        if node.name() == COPY_SLICES:
            self._lost("CopySlices", "the node of a write into a view holds another node, which cannot be reached")
            return
        slots = [(name, slot, saved_by_nodes.slot_content(slot)) for name, slot in saved_by_nodes.saved_slots(node)]
        self.freed += all(content in (None, (None, False)) for _, _, content in slots) and saved_by_nodes.is_freed(node)
        for name, slot, content in slots:
            if content is not None:
                self._slot(i, name, slot, *content)
        # Attributes that a custom function set on its ctx, which is the node itself.
        for name, value in list(getattr(node, "__dict__", {}).items()):
            if name in ("saved_tensors", "to_save", "non_differentiable", "dirty_tensors"):
                continue
            for tensor in tensors_in(value, depth=_DEPTH, attributes=True):
                self._tensor(i, f"ctx.{name}", tensor, False)

    def _lost(self, what: str, why: str) -> None:
        """Count a case whose memory cannot be determined."""
        self.unknown[what, why] = self.unknown.get((what, why), 0) + 1

    def _slot(self, i: int, name: str, slot: Any, content: object, packed: bool) -> None:
        """Add the content of a slot of node `i`; what a checkpoint keeps is found through its hook.

        :param packed: a saved-tensor hook has packed the content.
        """
        if not packed:
            if isinstance(content, torch.Tensor):
                self._tensor(i, name, content, False, slot)
            return
        frame = checkpoints.checkpoint_frame(slot.unpack_hook)
        if frame is None:
            self.content(i, name, content)
        elif id(frame) not in self._frames_seen:
            self._frames_seen.add(id(frame))
            for one in checkpoints.checkpoint_inputs(frame):
                inside = saved_by_nodes.slot_content(one)
                if inside is not None:
                    self._slot(i, "input of a checkpoint", one, *inside)

    def content(self, i: int, name: str, content: object) -> None:
        """Add an object that a saved-tensor hook, ours or another's, packed."""
        if isinstance(content, Elsewhere):
            copies = self.placed.setdefault(content.policy, {})
            copies[content.key] = (content.nbytes, copies.get(content.key, (0, 0))[1] + 1)
            return
        if isinstance(content, StandIn):
            for one in content.contents():
                self.content(i, name, one)
            return
        if saved_by_nodes.is_unseen(content):
            self._lost("tensors packed by saved-tensor hooks", "this version of torch does not show what they became")
            return
        tensors = tensors_in(content, depth=_DEPTH, attributes=True)
        for tensor in tensors:
            self._tensor(i, name, tensor, True)
        if not tensors:
            self._lost("tensors packed by saved-tensor hooks", f"what they became is a {type(content).__name__}")

    def _tensor(self, i: int, name: str, tensor: torch.Tensor, packed: bool, slot: object = None) -> None:
        """Add the storages of a saved tensor of node `i`.

        `slot`: the slot that holds it; ``None`` if a Python object does.
        """
        parts = pieces(tensor)
        if parts is None:
            self._lost(f"{type(tensor).__name__} ({tensor.layout})", "its memory cannot be read")
            return
        for part in parts:
            try:
                storage = part.untyped_storage()
                key = storage_ids.storage_key(storage)
            except (RuntimeError, NotImplementedError):
                self._lost(type(part).__name__, "it has no storage of its own")
                continue
            found = self.found.get(key)
            if found is None:
                found = self.found[key] = Found(storage, i, name, part, packed)
            found.add(i, name, part, slot is None)
            if slot is not None:
                found.hidden += saved_by_nodes.hidden_users(slot)
