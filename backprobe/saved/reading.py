"""Read a graph into a ledger: walk the nodes, look at what each keeps, ask who else holds the memory.

L1. Nothing is unpacked: unpacking runs user code, and a checkpoint computes again.
L2. A storage is held by others if it has more users than the graph explains (the tensors that the slots hold, their
    bases, and the Python object of the storage), or if one of these tensors has more references from Python than one
    that a graph alone holds.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ..graph.plan import ACCUMULATE, engine_order
from ..observe import private
from ..observe.deep import DEEP
from ..observe.frames import Frames, variables
from ..observe.graphs import Plans, walk
from ..observe.roots import clean_path, modules_in_sight
from .cells import Cell, Kept
from .copies import Viewed
from .layers import Repacked
from .ledger import Entry, Moment, Placed, Reading, Unknown

#: (op, module, site) of the op that made the node with a sequence number.
Origin = tuple[str | None, str | None, Any]


class _Found:
    """One storage while the graph is read."""

    __slots__ = (
        "contained",
        "dtype",
        "first",
        "hidden",
        "keep",
        "name",
        "packed",
        "savers",
        "shape",
        "storage",
        "tensors",
        "views",
    )

    def __init__(
        self, storage: torch.UntypedStorage, first: int, name: str, tensor: torch.Tensor, packed: bool
    ) -> None:
        self.storage, self.first, self.name, self.packed = storage, first, name, packed
        self.shape, self.dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        self.tensors, self.views = 0, 0
        self.savers: set[int] = set()
        #: The tensors that explain its users (L2), by identity.
        self.keep: dict[int, torch.Tensor] = {}
        #: Those of them that something in Python holds for the graph, by identity.
        self.contained: set[int] = set()
        #: Users besides them that nobody can see.
        self.hidden = 0

    def add(self, node: int, tensor: torch.Tensor, contained: bool) -> None:
        self.tensors += 1
        self.savers.add(node)
        self.keep[id(tensor)] = tensor
        if contained:
            self.contained.add(id(tensor))
        base = tensor._base if tensor._is_view() else None
        whole = tensor.numel() * tensor.element_size() == self.storage.nbytes()
        self.views += base is not None or not whole or not tensor.is_contiguous()
        if base is not None:
            self.keep[id(base)] = base


def pieces(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """The strided tensors that a tensor consists of; ``None`` where that is not known."""
    if private.is_wrapped(tensor):
        return None
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is not None:
        found: list[torch.Tensor] = []
        for name in tensor.__tensor_flatten__()[0]:  # type: ignore[operator]
            inner = pieces(getattr(tensor, name))
            if inner is None:
                return None
            found += inner
        return found
    layout = tensor.layout
    if layout is torch.strided:
        return [tensor]
    if layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return None


def tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """Tensors in nested tuples, lists, dicts and the attributes of plain objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        inner: Iterable[Any] = ()
        if isinstance(value, (tuple, list)):
            inner = value
        elif isinstance(value, dict):
            inner = value.values()
        elif hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module)) and not callable(value):
            inner = vars(value).values()
        for one in list(inner):
            yield from tensors_in(one, depth - 1)


def checkpoint_frame(hook: Any) -> Any:
    """The frame of a checkpoint that is not reentrant, from the hook that unpacks for it; ``None`` for other hooks."""
    code = getattr(hook, "__code__", None)
    if code is None or not code.co_filename.endswith("checkpoint.py") or "frame" not in code.co_freevars:
        return None
    return hook.__closure__[code.co_freevars.index("frame")].cell_contents


class Reader:
    """Reads one graph."""

    def __init__(self, origins: Any = None) -> None:
        self._origins = origins
        self._found: dict[int, _Found] = {}
        self._placed: dict[str, dict[int, tuple[int, int]]] = {}
        self._unknown: dict[tuple[str, str], int] = {}
        self._frames_seen: set[int] = set()

    def read(self, roots: list[Any], names: Names) -> Reading:
        """Read what the nodes `roots` reach. Not given as tensors: a list of those would hold what the graph holds."""
        graph = walk(roots, Plans(1))
        nodes, seqs, plan = graph.nodes, graph.seqs, graph.plan
        order = sorted(range(len(nodes)), key=seqs.__getitem__)
        for i in order:
            if plan.names[i] != ACCUMULATE:
                self._node(i, nodes[i])
        names.look(nodes)
        names.other_graphs(nodes, set(self._found))
        entries = []
        freed: dict[int, list[int]] = {}
        position = {i: at for at, i in enumerate(engine_order(plan, seqs))}
        for key, found in self._found.items():
            holder, holder_name = names.of(key, found)
            op, module, site = self._origin(nodes[found.first], seqs[found.first])
            node = plan.names[found.first]
            entries.append(
                Entry(
                    found.storage.nbytes(),
                    node,
                    found.name,
                    found.shape,
                    found.dtype,
                    op or re.sub(r"Backward\d*$", "", node),
                    module,
                    site,
                    found.tensors,
                    found.views,
                    holder,
                    holder_name,
                    found.packed,
                )
            )
            if not holder:
                last = max((position[i] for i in found.savers if i in position), default=0)
                freed.setdefault(last, []).append(found.storage.nbytes())
        entries.sort(key=lambda e: -e.nbytes)
        left = sum(e.nbytes for e in entries if not e.holder)
        curve = []
        for i, at in position.items():
            left -= sum(freed.get(at, ()))
            curve.append(Moment(plan.names[i], self._origin(nodes[i], seqs[i])[1], left))
        placed = [
            Placed(policy, sum(tensors for _, tensors in copies.values()), sum(size for size, _ in copies.values()))
            for policy, copies in self._placed.items()
        ]
        unknown = [Unknown(what, count, why) for (what, why), count in self._unknown.items()]
        return Reading(entries, placed, unknown, curve, len(nodes), nodes if len(nodes) > DEEP else [])

    def _origin(self, node: Any, seq: int) -> Origin:
        return self._origins(node, seq) if self._origins is not None else (None, None, None)

    def _lost(self, what: str, why: str) -> None:
        self._unknown[what, why] = self._unknown.get((what, why), 0) + 1

    def _node(self, i: int, node: Any) -> None:
        if not private.lists_its_tensors(node):
            self._lost(node.name(), "a node of a C++ extension, which does not say what it keeps")
            return
        if type(node).__name__ == "CopySlices":
            self._lost("CopySlices", "the node of a write into a view holds another node, which cannot be reached")
            return
        for name, slot in private.saved_slots(node):
            content = private.slot_content(slot)
            if content is not None:
                self._slot(i, name, slot, *content)
        # What a custom function put on its ctx, which is the node itself.
        for name, value in list(getattr(node, "__dict__", {}).items()):
            if name in ("saved_tensors", "to_save", "non_differentiable", "dirty_tensors"):
                continue
            for tensor in tensors_in(value):
                self._tensor(i, f"ctx.{name}", tensor, False)

    def _slot(self, i: int, name: str, slot: Any, content: Any, packed: bool) -> None:
        if not packed:
            if isinstance(content, torch.Tensor):
                self._tensor(i, name, content, False, slot)
            return
        if isinstance(content, Cell):
            self._held(i, name, content.held)
            return
        frame = checkpoint_frame(slot.unpack_hook)
        if frame is not None:
            if id(frame) not in self._frames_seen:
                self._frames_seen.add(id(frame))
                for one in private.checkpoint_inputs(frame):
                    inside = private.slot_content(one)
                    if inside is not None:
                        self._slot(i, "input of a checkpoint", one, *inside)
            return
        self._content(i, name, content)

    def _content(self, i: int, name: str, content: Any) -> None:
        if private.is_unseen(content):
            self._lost("tensors packed by saved-tensor hooks", "this version of torch does not show what they became")
            return
        tensors = list(tensors_in(content))
        for tensor in tensors:
            self._tensor(i, name, tensor, True)
        if not tensors:
            self._lost("tensors packed by saved-tensor hooks", f"what they became is a {type(content).__name__}")

    def _held(self, i: int, name: str, held: Any) -> None:
        """What a policy of ours made of a tensor."""
        if isinstance(held, Kept):
            self._tensor(i, name, held.tensor, True)
        elif isinstance(held, Viewed):
            copies = self._placed.setdefault(held.shared.policy, {})
            before = copies.get(id(held.shared), (0, 0))[1]
            copies[id(held.shared)] = (held.shared.nbytes, before + 1)
        elif isinstance(held, Repacked):
            for part in held.parts:
                self._held(i, name, part)
        else:
            self._content(i, name, held.content)

    def _tensor(self, i: int, name: str, tensor: torch.Tensor, packed: bool, slot: Any = None) -> None:
        parts = pieces(tensor)
        if parts is None:
            self._lost(f"{type(tensor).__name__} ({tensor.layout})", "its memory cannot be read")
            return
        for part in parts:
            try:
                storage = part.untyped_storage()
                key = private.storage_key(storage)
            except (RuntimeError, NotImplementedError):
                self._lost(type(part).__name__, "it has no storage of its own")
                continue
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = _Found(storage, i, name, part, packed)
            found.add(i, part, slot is None)
            if slot is not None:
                found.hidden += private.hidden_users(slot)


class Names:
    """Who may hold memory besides the graph: parameters and buffers, the user's variables, other graphs."""

    def __init__(self, frame: Any, frames: Frames, model: nn.Module | None) -> None:
        self._holders: dict[int, tuple[str, str]] = {}
        self._keep: list[Any] = []  # as long as keys matter
        self._roots: list[tuple[str, torch.Tensor]] = []
        self._alone: tuple[int, int] | None = None
        if model is not None:
            self._module(model)
        for _, module in modules_in_sight(frame, frames):
            self._module(module)
        while frame is not None:
            if frames.is_user(frame.f_code):
                for name, value in variables(frame).items():
                    for path, tensor in _named(name, value):
                        self._variable(path, tensor)
            frame = frame.f_back

    def _module(self, module: nn.Module) -> None:
        for path, p in module.named_parameters():
            self._hold(p, "parameter", clean_path(module, path))
        for path, b in module.named_buffers():
            self._hold(b, "buffer", clean_path(module, path))

    def _hold(self, tensor: torch.Tensor, kind: str, name: str) -> None:
        for part in pieces(tensor) or ():
            try:
                storage = part.untyped_storage()
            except (RuntimeError, NotImplementedError):
                continue
            self._keep.append(storage)
            self._holders.setdefault(private.storage_key(storage), (kind, name))

    def _variable(self, path: str, tensor: torch.Tensor) -> None:
        if isinstance(tensor, nn.Parameter):
            self._hold(tensor, "parameter", path)
            return
        self._roots.append((path, tensor))

    def look(self, nodes: list[Any]) -> None:
        """Leaves of the graph are parameters where they are, and variables else."""
        for node in nodes:
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, nn.Parameter):
                self._hold(leaf, "parameter", "")
        for path, tensor in self._roots:
            self._hold(tensor, "variable", path)
        for node in nodes:
            leaf = getattr(node, "variable", None)
            if isinstance(leaf, torch.Tensor):
                self._hold(leaf, "variable", "")

    def other_graphs(self, nodes: list[Any], keys: set[int], limit: int = 20_000) -> None:
        """Memory that graphs of the user's other tensors have saved too."""
        own = set(nodes)
        for path, tensor in self._roots:
            if tensor.grad_fn is None or tensor.grad_fn in own:
                continue
            more: list[Any] = [tensor.grad_fn]
            seen = set(more)
            for node in more:  # grows as we go
                for _, slot in private.saved_slots(node):
                    content = private.slot_content(slot)
                    if content is not None and isinstance(content[0], torch.Tensor):
                        for part in pieces(content[0]) or ():
                            storage = part.untyped_storage()
                            key = private.storage_key(storage)
                            if key in keys:
                                self._keep.append(storage)
                                self._holders.setdefault(key, ("graph", path))
                for child, _ in node.next_functions:
                    if child is not None and child not in own and child not in seen and len(more) < limit:
                        seen.add(child)
                        more.append(child)

    def of(self, key: int, found: _Found) -> tuple[str, str]:
        known = self._holders.get(key)
        if known is not None:
            return known
        users = private.storage_users(found.storage) - 1
        if self._alone is None:
            self._alone = _references_of_a_graph()
        return ("other", "") if users > len(found.keep) + found.hidden or _referred(found, self._alone) else ("", "")


def _referred(found: _Found, alone: tuple[int, int]) -> bool:
    """Whether Python refers to one of the tensors from more places than the graph explains."""
    keep, contained = found.keep, found.contained
    return any(_references(found, key) > alone[key in contained] for key in keep)


def _references(found: _Found, key: int) -> int:
    return sys.getrefcount(found.keep[key])


def _references_of_a_graph() -> tuple[int, int]:
    """References from Python to a tensor that nobody but a node holds, and to one that a container in Python holds for
    a node: how they count differs between versions."""
    made: list[Any] = []

    def make() -> None:
        with torch.enable_grad():
            inner = torch.ones(1, requires_grad=True).clone()
            made.append((inner * inner).grad_fn)

    thread = threading.Thread(target=make)  # where no saved-tensor hooks are on
    thread.start()
    thread.join()
    reader = Reader()
    reader._node(0, made[0])
    box = [torch.ones(2)]
    reader._content(0, "", box)
    plain, held = reader._found.values()
    return _references(plain, *plain.keep), _references(held, *held.keep)


def _named(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a variable: itself, in a list or tuple, in a dict or a mapping such as a model's output."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)) and len(value) <= 1000:
        for i, one in enumerate(value):
            if isinstance(one, torch.Tensor):
                yield f"{name}[{i}]", one
    elif isinstance(value, dict) and len(value) <= 1000:
        for key, one in list(value.items()):
            if isinstance(one, torch.Tensor):
                yield f"{name}[{key!r}]", one
