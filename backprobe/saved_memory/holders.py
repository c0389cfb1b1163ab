"""Holders of memory other than the graph: parameters and buffers, the user's variables, other graphs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ..source.frames import Frames, variables
from ..source.roots import clean_path, modules_in_sight
from ..torch_internals import saved_by_nodes, storage_ids
from ..torch_internals.deep_graph_free import protect_walked
from ..torch_internals.structure import is_a, leaves
from .storages import Found, Storages, pieces


class Holders:
    """Finds holders of storages. Variable names are those of the user's running functions."""

    def __init__(self, frame: Any, frames: Frames, models: Iterable[nn.Module] = ()) -> None:
        """Collect the parameters and buffers of `models` and of modules in sight, and the tensors in variables, from
        `frame` on.
        """
        self._holders: dict[int, tuple[str, str]] = {}
        self._keep: list[Any] = []  # as long as keys matter
        self._roots: list[tuple[str, torch.Tensor]] = []
        self._alone: tuple[int, int] | None = None
        for model in models:
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
        """Register the parameters and buffers of a module."""
        for path, p in module.named_parameters():
            self._hold(p, "parameter", clean_path(module, path))
        for path, b in module.named_buffers():
            self._hold(b, "buffer", clean_path(module, path))

    def _hold(self, tensor: torch.Tensor, kind: str, name: str) -> None:
        """Register the storages of a tensor as held, unless they are held already."""
        for part in pieces(tensor) or ():
            try:
                storage = part.untyped_storage()
            except (RuntimeError, NotImplementedError):
                continue
            self._keep.append(storage)
            self._holders.setdefault(storage_ids.storage_key(storage), (kind, name))

    def _variable(self, path: str, tensor: torch.Tensor) -> None:
        """Register a variable's tensor: a parameter as held, any other as a root of a graph of its own."""
        if isinstance(tensor, nn.Parameter):
            self._hold(tensor, "parameter", path)
            return
        self._roots.append((path, tensor))

    def look(self, nodes: list[torch.autograd.graph.Node]) -> None:
        """Register the graph's leaves: as parameters if they are ``nn.Parameter``, else as variables."""
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

    def other_graphs(self, nodes: list[torch.autograd.graph.Node], keys: set[int], limit: int = 20_000) -> None:
        """Register memory that graphs of the user's other tensors have saved too."""
        own = set(nodes)
        for path, tensor in self._roots:
            if tensor.grad_fn is None or tensor.grad_fn in own:
                continue
            more: list[Any] = [tensor.grad_fn]
            seen = set(more)
            for node in more:  # grows as we go
                for _, slot in saved_by_nodes.saved_slots(node):
                    content = saved_by_nodes.slot_content(slot)
                    if content is not None and isinstance(content[0], torch.Tensor):
                        for part in pieces(content[0]) or ():
                            storage = part.untyped_storage()
                            key = storage_ids.storage_key(storage)
                            if key in keys:
                                self._keep.append(storage)
                                self._holders.setdefault(key, ("graph", path))
                for child, _ in node.next_functions:
                    if child is not None and child not in own and child not in seen and len(more) < limit:
                        seen.add(child)
                        more.append(child)
            protect_walked(more)

    def of(self, key: int, found: Found) -> tuple[str, str]:
        """Return kind and name of another holder of a storage than the graph; two empty strings if there is none.

        See Note [Who holds a storage].
        """
        known = self._holders.get(key)
        if known is not None:
            return known
        users = storage_ids.storage_users(found.storage) - 1
        if self._alone is None:
            self._alone = _references_of_a_graph()
        explained = len(found.keep) + found.hidden
        return ("other", "") if users > explained or found.referred(self._alone) else ("", "")


def _references_of_a_graph() -> tuple[int, int]:
    """Measure the reference counts of a tensor that only a node holds, and of one in a Python container of a node.

    They differ between versions of torch.
    """
    made: list[Any] = []

    def make() -> None:
        """Make the node and the container, in a thread without modes and hooks."""
        with torch.enable_grad():
            inner = torch.ones(1, requires_grad=True).clone()
            made.extend(((inner * inner).grad_fn, [torch.ones(2)]))

    thread = threading.Thread(target=make)  # without the script's modes and saved-tensor hooks
    thread.start()
    thread.join()
    storages = Storages()
    storages.add(0, made[0])
    storages.content(0, "", made[1])
    plain, held = storages.found.values()
    return plain.references(*plain.keep), held.references(*held.keep)


def _named(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a variable: itself, or those in a list, tuple or dict such as a model's output."""
    if is_a(value, torch.Tensor) or (is_a(value, (tuple, list, dict)) and len(value) <= 1000):
        for path, one in leaves(value, name, depth=1):
            if isinstance(one, torch.Tensor):
                yield path, one
