"""Read one autograd node after another into the columns of a graph."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.checkpoint import CheckpointFunction

from ..graph.data import Columns, Inside, Leaf, NodeKind, SavedKind, TensorMeta
from ..records import ACCUMULATE_SEQ, Site
from . import private
from .measure import dtype_name
from .names import Names

#: The last file and line of the text of a stack trace, and the attribute that a path of Dynamo's begins with.
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)(?:\n\s*(.+))?')
_SELF = re.compile(r"^L\[[^\]]*\]\.?")


class NodeReader:
    """Reads nodes; equal shapes, kinds and saved tensors are stored once (N20)."""

    def __init__(self, columns: Columns, names: Names, saved: bool) -> None:
        self._columns, self._names, self._saved = columns, names, saved
        self.leaves: dict[int, Leaf] = {}
        self.inside: dict[int, tuple[Inside, ...]] = {}
        self._kinds: dict[Any, int] = {}
        self._metas: dict[Any, TensorMeta] = {}
        self._saved_kinds: dict[SavedKind, int] = {}
        self._storages: dict[int, int] = {}
        self._attributes: dict[type, tuple[tuple[str, str, str], ...]] = {}
        self._types: dict[type, str] = {}
        #: Storage -> the leaf of this graph that lives in it.
        self._leaf_storage: dict[int, str | None] = {}
        #: Row of a saved tensor -> the node that made it, until its index is known.
        self._makers: list[tuple[int, Any]] = []
        self._count = 0
        self._freed = 0

    def read(self, node: Any) -> None:
        """The next node. Its edges are the walk's business."""
        columns = self._columns
        i = self._count
        self._count = i + 1
        seq = node._sequence_nr()
        columns.seqs.append(seq)
        kind = self._types.get(type(node))
        if kind is None:
            kind = self._types[type(node)] = _kind_of(node)
        name = node.name()
        metas = tuple([self._meta(m.shape, m.dtype, m.device) for m in node._input_metadata])
        key = (name, kind, metas)
        row = self._kinds.get(key)
        if row is None:
            row = self._kinds[key] = len(columns.kinds)
            columns.kinds.append(NodeKind(name, kind, metas))
        columns.kind.append(row)
        columns.place.append(0)
        freed: bool | None = None
        if kind == "accumulate":
            self._leaf(i, node)
        elif self._saved:
            freed = self._read_saved(i, node, kind)
        columns.freed.append(0 if freed is None else 2 if freed else 1)
        self._freed += freed is True
        columns.saved_starts.append(len(columns.saved_kind))
        if kind == "compiled":
            self.inside[i] = inside_of(node)

    def resolve(self, index: dict[Any, int]) -> None:
        """All nodes are known now: which of them made what was saved."""
        made = self._columns.made
        for row, maker in self._makers:
            made[row] = index.get(maker, -1)
        self._makers.clear()

    def notes(self) -> list[str]:
        notes = []
        if self._freed:
            notes.append(
                f"a backward has freed what {self._freed} nodes had saved: only their shapes and edges are left; "
                "backward(retain_graph=True) keeps it"
            )
        if self.inside:
            unknown = sum(1 for ops in self.inside.values() if not ops)
            notes.append(
                f"{len(self.inside)} nodes are compiled regions: what ran inside is not in the autograd graph"
                + (f", and torch no longer has the inside of {unknown}" if unknown else "; see node.inside")
            )
        return notes

    def _meta(self, shape: Any, dtype: Any, device: Any) -> TensorMeta:
        shape = tuple(shape)
        key = (shape, dtype, device)
        found = self._metas.get(key)
        if found is None:
            plain = tuple(n if type(n) is int else _size(n) for n in shape)
            found = self._metas[key] = TensorMeta(plain, dtype_name(dtype), str(device))
        return found

    def _leaf(self, i: int, node: Any) -> None:
        tensor = node.variable
        name, aliases = self._names.of(tensor)
        meta = self._meta(tensor.shape, tensor.dtype, tensor.device)
        self.leaves[i] = Leaf(name, meta, isinstance(tensor, torch.nn.Parameter), aliases)

    def _read_saved(self, i: int, node: Any, kind: str) -> bool | None:
        attributes = self._attributes.get(type(node))
        if attributes is None:
            attributes = self._attributes[type(node)] = private.saved_attributes(type(node), node)
        if attributes:
            found, freed = private.read_saved(node, attributes)
            for one in found:
                self._add_saved(i, node, one)
        else:
            freed = None
        if kind in ("function", "checkpoint"):
            for name, value in list(vars(node).items()):
                for k, item in enumerate(value if isinstance(value, (tuple, list)) else [value]):
                    if isinstance(item, torch.Tensor):
                        title = f"ctx.{name}" + (f"[{k}]" if isinstance(value, (tuple, list)) else "")
                        self._add_saved(i, node, private.SavedView(title, item, item.grad_fn is node, False, None))
        return freed

    def _add_saved(self, i: int, node: Any, one: private.SavedView) -> None:
        columns, tensor = self._columns, one.tensor
        number = -1
        if tensor is None:
            hook = getattr(one.hook, "__qualname__", type(one.hook).__name__)
            made = SavedKind(one.name, None, 0, 0, False, "hidden", None, False, hook)
        else:
            meta = self._meta(tensor.shape, tensor.dtype, tensor.device)
            storage = private.storage_of(tensor)
            size = tensor.numel() * tensor.element_size() if storage is not None else 0
            owner: tuple[str, bool] | None = None
            if storage is not None:
                number = self._storages.setdefault(storage[0], len(self._storages))
                owner = self._names.storages.get(storage[0])
            maker = node if one.own else tensor.grad_fn
            if owner is not None:
                role = "buffer" if owner[1] else "parameter"
            elif maker is not None:
                role = "result"
            elif tensor.requires_grad:
                role = "parameter" if isinstance(tensor, torch.nn.Parameter) else "leaf"
            else:
                role = "constant"
            if maker is not None:
                self._makers.append((len(columns.saved_kind), maker))
            total = storage[1] if storage is not None else 0
            view = storage is not None and (size < total or tensor._is_view())
            made = SavedKind(
                one.name, meta, size, total, view, role, owner[0] if owner else None, one.changed, None
            )
        row = self._saved_kinds.get(made)
        if row is None:
            row = self._saved_kinds[made] = len(columns.saved_kinds)
            columns.saved_kinds.append(made)
        columns.saved_kind.append(row)
        columns.storage.append(number)
        columns.made.append(-1)


def _kind_of(node: Any) -> str:
    if node._sequence_nr() == ACCUMULATE_SEQ and hasattr(node, "variable"):
        return "accumulate"
    if private.is_compiled(node):
        return "compiled"
    if getattr(node, "_forward_cls", None) is CheckpointFunction:
        return "checkpoint"
    return "function" if isinstance(node, BackwardCFunction) else "op"


def _size(number: Any) -> int:
    """A size as a number; -1 for one that is symbolic and has no value."""
    try:
        return int(number)
    except Exception:  # data dependent: torch raises one of several types of its own
        return -1


def inside_of(node: Any) -> tuple[Inside, ...]:
    """The operations of a compiled region's backward, in the order they run; empty where torch no longer has them."""
    module = private.backward_module(node)
    found = []
    for op in module.graph.nodes if module is not None else ():
        if op.op != "call_function":
            continue
        stack = op.meta.get("nn_module_stack") or op.meta.get("fwd_nn_module_stack") or {}
        paths = [path for path, _ in stack.values()]
        frames = _FRAME.findall(op.stack_trace or "")
        site = Site(frames[-1][0], int(frames[-1][1]), frames[-1][2], frames[-1][3].strip()) if frames else None
        inputs = tuple(source.name for source in op.all_input_nodes)
        found.append(Inside(op.name, str(op.target), inputs, _SELF.sub("", paths[-1]) if paths else None, site))
    return tuple(found)
