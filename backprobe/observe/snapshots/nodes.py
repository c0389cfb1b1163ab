"""Reads autograd nodes, one after another, into the columns of a graph."""

from __future__ import annotations

import os
import re
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.checkpoint import CheckpointFunction

from ...graphs.data import Columns, Inside, Leaf, NodeKind, SavedKind, TensorMeta
from ...records import ACCUMULATE_SEQ, Site
from ...source.frames import Frames
from ...torch_internals import private
from ...torch_internals.measure import dtype_name, shape_of
from .tensor_names import TensorNames

#: The file and line of an entry in a stack trace's text, and the prefix of module paths in Dynamo.
_FRAME_TEXT = re.compile(r'File "([^"]+)", line (\d+), in (\S+)(?:\n\s*(.+))?')
_DYNAMO_PREFIX = re.compile(r"^L\[[^\]]*\]\.?")
#: A submodule in such a path, as some versions of torch write it.
_SUBMODULE = re.compile(r"(^|\.)_modules\['([^']*)'\]")


class NodeReader:
    """Reads nodes; equal shapes, kinds and saved tensors are stored once (Note [Graphs are columns])."""

    def __init__(self, columns: Columns, names: TensorNames, saved: bool) -> None:
        """Read into `columns`. `saved`: also read saved tensors."""
        self._columns, self._names, self._saved = columns, names, saved
        self.leaves: dict[int, Leaf] = {}
        self.inside: dict[int, tuple[Inside, ...]] = {}
        self._kinds: dict[object, int] = {}
        self._metas: dict[object, TensorMeta] = {}
        self._saved_kinds: dict[object, int] = {}
        self._storages: dict[int, int] = {}
        self._attributes: dict[type, tuple[tuple[str, str, str], ...]] = {}
        self._types: dict[type, tuple[str, str]] = {}
        #: Storage -> the leaf of this graph that uses the storage.
        self._leaf_storage: dict[int, str | None] = {}
        #: (Row of a saved tensor, the node that made the tensor), until the index of the node is known.
        self._makers: list[tuple[int, Any]] = []
        self._count = 0
        self._freed = 0

    def read(self, node: torch.autograd.graph.Node) -> None:
        """Append the description of one autograd node to the columns: number, kind, shapes, saved tensors, whether it
        is freed. The caller appends its edges.
        """
        columns = self._columns
        i = self._count
        self._count = i + 1
        columns.seqs.append(node._sequence_nr())
        cls = type(node)
        known = self._types.get(cls)
        if known is None:
            known = self._types[cls] = self._add_type(cls, node)
        kind, name = known
        metas = node._input_metadata
        try:
            if len(metas) == 1:  # mostly the same few shapes: one dictionary look-up
                (m,) = metas
                key: object = (cls, name or node.name(), tuple(m.shape), m.dtype, m.device)
            else:
                key = (cls, name or node.name(), *[(tuple(m.shape), m.dtype, m.device) for m in metas])
            row = self._kinds.get(key)
        except (RuntimeError, TypeError):  # symbolic sizes, or nested tensors, which have none
            key = (cls, name or node.name(), *[(shape_of(m), m.dtype, m.device) for m in metas])
            row = self._kinds.get(key)
        if row is None:
            row = self._kinds[key] = len(columns.kinds)
            inputs = tuple([self._meta(shape_of(m), m.dtype, m.device) for m in metas])
            columns.kinds.append(NodeKind(name or node.name(), kind, inputs))
        columns.kind.append(row)
        columns.place.append(0)
        freed: bool | None = None
        if kind == "accumulate":
            self._leaf(i, node)
        elif self._saved:
            freed = self._read_saved(node, kind)
        columns.freed.append(0 if freed is None else 2 if freed else 1)
        self._freed += freed is True
        columns.saved_starts.append(len(columns.saved_kind))
        if kind == "compiled":
            self.inside[i] = inside_of(node, Frames((os.getcwd(),)))

    def _add_type(self, cls: type, node: torch.autograd.graph.Node) -> tuple[str, str]:
        """Return the kind of a new node type, and the name of its nodes.

        The name is empty unless all its nodes have the type's name.
        """
        self._attributes[cls] = private.saved_attributes(cls, node)
        return _kind_of(node), node.name() if node.name() == cls.__name__ or cls.__name__ == "AccumulateGrad" else ""

    def resolve(self, index: dict[object, int]) -> None:
        """Set which nodes made the saved tensors, now that the index of every node is known."""
        made = self._columns.made
        for row, maker in self._makers:
            made[row] = index.get(maker, -1)
        self._makers.clear()

    def notes(self) -> list[str]:
        """Return sentences on what the graph lacks: saved tensors that a backward has freed, and insides of compiled
        regions.
        """
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

    def _meta(self, shape: tuple[int, ...], dtype: object, device: object) -> TensorMeta:
        """Return the object for a shape, dtype and device, shared by all that are equal."""
        key = (shape, dtype, device)
        found = self._metas.get(key)
        if found is None:
            found = self._metas[key] = TensorMeta(shape, dtype_name(dtype), str(device))
        return found

    def _leaf(self, i: int, node: Any) -> None:
        """Add the leaf tensor of accumulator `node`, which has the index `i`."""
        tensor = node.variable
        name, aliases = self._names.of(tensor)
        meta = self._meta(shape_of(tensor), tensor.dtype, tensor.device)
        self.leaves[i] = Leaf(name, meta, isinstance(tensor, torch.nn.Parameter), aliases)

    def _read_saved(self, node: object, kind: str) -> bool | None:
        """Add the saved tensors of a node, also attributes of a custom function's ``ctx``.

        :returns: whether a backward has freed them; ``None`` if the node saves none.
        """
        freed: bool | None = None
        attributes = self._attributes[type(node)]
        if attributes:
            found, freed = private.read_saved(node, attributes)
            for one in found:
                self._add_saved(node, *one)
        if kind in ("function", "checkpoint"):
            for name, value in list(vars(node).items()):
                for k, item in enumerate(value if isinstance(value, (tuple, list)) else [value]):
                    if isinstance(item, torch.Tensor):
                        title = f"ctx.{name}" + (f"[{k}]" if isinstance(value, (tuple, list)) else "")
                        self._add_saved(node, title, item, item.grad_fn is node, False, None)
        return freed

    def _add_saved(self, node: object, name: str, tensor: Any, own: bool, changed: bool, hook: object) -> None:
        """Add a row for a saved tensor: its kind, storage and role.

        :param tensor: ``None`` if a saved-tensor hook has packed it; then `hook` is that hook.
        :param own: it is the node's own result; `changed`: it was written to since it was saved.
        """
        columns = self._columns
        number = -1
        if tensor is None:
            title = getattr(hook, "__qualname__", type(hook).__name__)
            key: object = (name, title)
            row = self._saved_kinds.get(key)
            if row is None:
                row = self._saved_kinds[key] = len(columns.saved_kinds)
                columns.saved_kinds.append(SavedKind(name, None, 0, 0, False, "hidden", None, False, title))
        else:
            storage = private.storage_of(tensor)
            size = total = 0
            owner: tuple[str, bool] | None = None
            if storage is not None:
                at, total = storage
                size = tensor.numel() * tensor.element_size()
                number = self._storages.setdefault(at, len(self._storages))
                owner = self._names.storages.get(at)
            maker = node if own else tensor.grad_fn
            if maker is not None:
                self._makers.append((len(columns.saved_kind), maker))
            if owner is not None:
                role = "buffer" if owner[1] else "parameter"
            elif maker is not None:
                role = "result"
            elif tensor.requires_grad:
                role = "parameter" if isinstance(tensor, torch.nn.Parameter) else "leaf"
            else:
                role = "constant"
            view = storage is not None and (size < total or tensor._is_view())
            shape, dtype, device = shape_of(tensor), tensor.dtype, tensor.device
            key = (name, shape, dtype, device, total, view, role, owner, changed)
            row = self._saved_kinds.get(key)
            if row is None:
                row = self._saved_kinds[key] = len(columns.saved_kinds)
                meta, owned = self._meta(shape, dtype, device), owner[0] if owner else None
                columns.saved_kinds.append(SavedKind(name, meta, size, total, view, role, owned, changed, None))
        columns.saved_kind.append(row)
        columns.storage.append(number)
        columns.made.append(-1)


def _kind_of(node: torch.autograd.graph.Node) -> str:
    """Return the kind of a node: ``accumulate``, ``compiled``, ``checkpoint``, ``function`` (of Python) or ``op``."""
    if node._sequence_nr() == ACCUMULATE_SEQ and hasattr(node, "variable"):
        return "accumulate"
    if private.is_compiled(node):
        return "compiled"
    if getattr(node, "_forward_cls", None) is CheckpointFunction:
        return "checkpoint"
    return "function" if isinstance(node, BackwardCFunction) else "op"


def _path(path: str) -> str:
    """Return the path of a module in Dynamo's notation as a plain module path."""
    return _SUBMODULE.sub(r"\1\2", _DYNAMO_PREFIX.sub("", path))


def inside_of(node: object, frames: Frames) -> tuple[Inside, ...]:
    """Return the operations of a compiled region's backward in execution order; empty if torch no longer has them."""
    module = private.backward_module(node)
    found = []
    for op in module.graph.nodes if module is not None else ():
        if op.op != "call_function":
            continue
        stack = op.meta.get("nn_module_stack") or op.meta.get("fwd_nn_module_stack") or {}
        paths = [path for path, _ in stack.values()]
        lines = [found for found in _FRAME_TEXT.findall(op.stack_trace or "") if frames.is_users_file(found[0])]
        site = Site(lines[-1][0], int(lines[-1][1]), lines[-1][2], lines[-1][3].strip()) if lines else None
        inputs = tuple(source.name for source in op.all_input_nodes)
        found.append(Inside(op.name, str(op.target), inputs, _path(paths[-1]) if paths else None, site))
    return tuple(found)
