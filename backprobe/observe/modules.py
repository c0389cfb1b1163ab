"""Module calls: global forward hooks that note which call is running, and the names of modules."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from . import private
from .frames import Frames, Spot

#: Wrappers whose own level is left out of paths: (class name, attribute that holds the wrapped module).
_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}


class Call:
    """A module call that is running or has run. Turned into a ``ModuleCall`` record when a step is kept."""

    __slots__ = ("begin", "call", "class_name", "depth", "end", "outputs", "parent", "path", "root", "spot")

    def __init__(self, root: Root | None, path: str | None, class_name: str, parent: Call | None, begin: int) -> None:
        self.root, self.path, self.class_name, self.parent = root, path, class_name, parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.call = 1
        self.begin, self.end = begin, -1
        self.outputs: tuple[tuple[int, ...], ...] = ()
        self.spot: Spot | None = None


class Root:
    """An outermost module: how a script calls it and the paths inside it."""

    def __init__(self, module: nn.Module, label: str) -> None:
        self.ref = weakref.ref(module)
        self.label = label
        self.class_name = type(module).__name__
        self.paths: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        self.scan()

    def scan(self) -> None:
        module = self.ref()
        if module is None:
            return
        for path, m in module.named_modules():
            self.paths.setdefault(id(m), (weakref.ref(m), clean_path(module, path)))
        self.has_parameters = any(True for _ in module.parameters())

    def path_of(self, module: nn.Module) -> str | None:
        found = self.paths.get(id(module))
        return found[1] if found and found[0]() is module else None


def clean_path(root: nn.Module, path: str) -> str:
    """`path` without the levels that wrappers such as data parallel add, so that it names the user's own module."""
    attribute = _WRAPPERS.get(type(root).__name__)
    if attribute and (path == attribute or path.startswith(attribute + ".")):
        return path[len(attribute) + 1 :]
    return path


def unwrap(module: nn.Module) -> nn.Module:
    while type(module).__name__ in _WRAPPERS:
        module = getattr(module, _WRAPPERS[type(module).__name__])
    return module


def _modules_in_sight(frame: Any, frames: Frames) -> Iterator[tuple[str, nn.Module]]:
    """Modules that the user's frames hold: local variables, and attributes of a local ``self``."""
    while frame is not None:
        if frames.is_user(frame.f_code):
            local = frame.f_locals
            for name, value in list(local.items()):
                if isinstance(value, nn.Module):
                    yield name, value
            owner = local.get("self")
            if owner is not None and not isinstance(owner, nn.Module):
                for name, value in list(getattr(owner, "__dict__", {}).items()):
                    if isinstance(value, nn.Module):
                        yield name, value
        frame = frame.f_back


class ModuleWatch:
    """Keeps, per thread, the stack of running module calls; lists the calls of the current step."""

    def __init__(self, frames: Frames, limit: int = 100_000) -> None:
        self._frames = frames
        self._limit = limit
        self._local = threading.local()
        self._handles: list[Any] = []
        self._counts: dict[tuple[int, str | None, str], int] = {}
        self.roots: list[Root] = []
        self.calls: list[Call] = []
        self.dropped = 0

    def start(self) -> None:
        self._handles = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def stop(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def add_root(self, module: nn.Module, label: str) -> Root:
        for root in self.roots:
            if root.ref() is module:
                return root
        # A module that holds an earlier root takes its place (``model.encoder(x)`` before ``model(x)``).
        root = Root(module, label)
        self.roots.append(root)
        return root

    @property
    def current(self) -> Call | None:
        stack = getattr(self._local, "stack", None)
        return stack[-1] if stack else None

    def new_step(self) -> None:
        self.calls = []
        self._counts = {}

    def _find_root(self, module: nn.Module) -> Root:
        for root in self.roots:
            if root.path_of(module) is not None and root.ref() is not None:
                return root
        label, holder = "", module
        size = -1
        for name, candidate in _modules_in_sight(sys._getframe(3), self._frames):
            members = list(candidate.modules())
            if len(members) > size and any(m is module for m in members):
                label, holder, size = name, candidate, len(members)
        return self.add_root(holder, label)

    def _enter(self, module: nn.Module, args: Any) -> None:
        try:
            stack = self._local.stack
        except AttributeError:
            stack = self._local.stack = []
        parent = stack[-1] if stack else None
        root = parent.root if parent is not None else None
        path = root.path_of(module) if root is not None else None
        if path is None:
            if parent is None or root is None:
                root = self._find_root(module)
                path = root.path_of(module)
            else:
                root.scan()
                path = root.path_of(module)
        call = Call(root, path, type(module).__name__, parent, private.next_sequence_nr())
        key = (id(root), path, call.class_name)
        call.call = self._counts[key] = self._counts.get(key, 0) + 1
        call.spot = self._frames.spot(sys._getframe(2))
        if len(self.calls) < self._limit:
            self.calls.append(call)
        else:
            self.dropped += 1
        stack.append(call)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        stack = getattr(self._local, "stack", None)
        if not stack:
            return
        call = stack.pop()
        call.end = private.next_sequence_nr()
        if isinstance(output, torch.Tensor):
            call.outputs = (tuple(output.shape),)
        elif isinstance(output, (tuple, list)):
            call.outputs = tuple(tuple(o.shape) for o in output if isinstance(o, torch.Tensor))

    def module_name(self, call: Call | None) -> str | None:
        """Path of `call` as findings spell it: bare with one root that has parameters, else after the root's label."""
        if call is None:
            return ""
        while call.path is None and call.parent is not None:
            call = call.parent
        if call.root is None or call.path is None:
            return None
        return self.full_name(call.root, call.path)

    def full_name(self, root: Root, path: str) -> str:
        several = sum(r.has_parameters for r in self.roots) > 1
        if root.has_parameters and not several:
            return path
        return f"{root.label}.{path}".strip(".") if root.label else path
