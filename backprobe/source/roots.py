"""Outermost modules: how a script calls them, the paths inside them, and references to module calls by path."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from types import FrameType

from torch import nn

from ..basics.torch_texts import OPTIMIZED, WRAPPERS
from ..torch_internals.sharding import plain_class
from ..torch_internals.structure import attributes_of, is_a
from .frames import Frames, variables


class RootModule:
    """An outermost module of the script: its display name, and the paths of the modules in it."""

    def __init__(self, module: nn.Module, label: str) -> None:
        self.ref = weakref.ref(module)
        self.label = label
        self.class_name = plain_class(type(module)).__name__
        self.paths: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        self.has_parameters = False
        self.scan()

    def scan(self) -> None:
        """Read the paths of all modules again, as the script may have added some, and whether there are parameters."""
        module = self.ref()
        if module is None:
            return
        for path, m in module.named_modules():
            known = self.paths.get(id(m))
            if known is None or known[0]() is not m:
                self.paths[id(m)] = (weakref.ref(m), clean_path(module, path))
        self.has_parameters = any(True for _ in module.parameters())

    def path_of(self, module: nn.Module) -> str | None:
        """Return the path of a module in this one; ``None`` if it is not part of it."""
        found = self.paths.get(id(module))
        return found[1] if found and found[0]() is module else None


class ModuleCallRef:
    """The n-th call of a module in a step (Note [One reference per module call]).

    ``path`` is ``None`` for a module that is not part of its model, such as a loss that the forward creates; ``around``
    is then the enclosing call. ``number``: no other object has it, not even after this one is freed.
    """

    __slots__ = ("around", "call", "class_name", "number", "path", "root")
    _numbers = itertools.count(1)

    def __init__(
        self, root: RootModule, path: str | None, class_name: str, call: int, around: ModuleCallRef | None = None
    ) -> None:
        self.root, self.path, self.class_name, self.call, self.around = root, path, class_name, call, around
        self.number = next(self._numbers)


def clean_path(root: nn.Module, path: str) -> str:
    """Return `path` without the levels that wrappers such as data parallel add."""
    kept: list[str] = []
    module: object = root
    for part in path.split(".") if path else ():
        name = type(module).__name__
        # A compiled module inside another module is kept: its contents are called in another way.
        if WRAPPERS.get(name) != part or (kept and name == OPTIMIZED):
            kept.append(part)
        inside = getattr(module, "_modules", None) or {}
        module = inside[part] if part in inside else None  # noqa: SIM401 (no dict in a scripted module)
    return ".".join(kept)


def modules_in_sight(frame: FrameType | None, frames: Frames) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module of each module that the user's frames hold: variables, and attributes of a local ``self``.

    A module that is being constructed, before the call of ``nn.Module.__init__``, has no parts yet and is left out.

    :param frame: the innermost frame to look at; all frames above it follow.
    """
    while frame is not None:
        if frames.is_user(frame.f_code):
            local = variables(frame)
            held = list(local.items())
            owner = local.get("self")
            if owner is not None and not is_a(owner, nn.Module):
                held += attributes_of(owner).items()
            for name, value in held:
                if is_a(value, nn.Module) and getattr(value, "_modules", None) is not None:
                    yield name, value
        frame = frame.f_back
