"""A function mode that observes in-place writes, the results of ops by source line, and the use of parameters.

A ``TorchFunctionMode`` sees torch calls made from Python, before they run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from ...basics.errors import BackprobeError
from ...observe.forward.writes import kind_of, targets
from ...records import Site
from ...source.frames import Frames
from ...torch_internals import autograd_engine, modes, references
from ...torch_internals.references import IdentityMap
from .captured import ByMemory
from .chosen import named_tensors

_compiling = modes.compiling
_frame = sys._getframe
#: Attributes of a tensor whose reading is an op.
_OPS = frozenset({"T", "mT", "H", "mH", "real", "imag"})
_SPEC = re.compile(r"(?P<file>.+):(?P<first>\d+)(?:-(?P<last>\d+))?")


class Lines:
    """Places in source files: ``model.py:41``, ``layers/attention.py:41-60``."""

    def __init__(self, specs: tuple[str, ...]) -> None:
        """Parse places such as ``model.py:41-60``.
        :raises BackprobeError: one of them is no place in a file.
        """
        self._places = []
        for spec in specs:
            match = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
            if match is None:
                raise BackprobeError(f"{spec!r} is no place in a file: write 'model.py:41' or 'model.py:41-60'")
            first = int(match["first"])
            file = match["file"].replace(os.sep, "/").removeprefix("./")
            self._places.append((file, first, int(match["last"] or first)))

    def __contains__(self, site: Site | None) -> bool:
        """Return whether `site` is at one of the places; a place may give only the end of the path."""
        if site is None:
            return False
        path = "/" + site.file.replace(os.sep, "/").lstrip("/")
        return any(
            first <= site.line <= last and path.endswith("/" + file.lstrip("/")) for file, first, last in self._places
        )


def _name(func: Any) -> str:
    """Return the name of a torch function; for the getter of a property, the property's name."""
    name = getattr(func, "__name__", "") or str(func)
    return str(getattr(func.__self__, "__name__", name)) if name == "__get__" else name


class CaptureMode(TorchFunctionMode):
    """Keeps values true, and hands on the results of ops that are asked for."""

    def __init__(self, shared: ByMemory) -> None:
        """Take the captured values by memory; results of ops are not passed on yet."""
        super().__init__()
        self._shared = shared
        self._kinds: dict[object, object] = {}
        self._frames: Frames | None = None
        self._lines: Lines | None = None
        #: Called with a site, the name of a function, the suffix of a nested result, and the tensor.
        self._on_result: Callable[[Site, str, str, object], None] | None = None
        #: The parameters that some op took.
        self.used: IdentityMap[bool] = IdentityMap(references.tensor_ref)

    def look_at(self, frames: Frames, lines: Lines | None, on_result: Callable[[Site, str, str, object], None]) -> None:
        """Hand on results of ops at these lines, or at all."""
        self._frames, self._lines, self._on_result = frames, lines, on_result

    def look_away(self) -> None:
        """Stop passing on results of ops."""
        self._frames = self._on_result = None

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> object:
        """Run `func`, and return its result.

        Values that it overwrites are saved before; its result is passed on if requested.
        """
        if _compiling() or modes.tracing():
            return func(*args, **(kwargs or {}))
        kind = self._kinds.get(func, self)
        if kind is self:
            kind = self._kinds[func] = kind_of(func)
        for a in args:
            if type(a) is Parameter and a not in self.used:
                self.used[a] = True
        views = None
        if (kind is not None or (kwargs and "out" in kwargs)) and self._shared:
            written = targets(kind, args, kwargs) if kind is not None else []
            out = (kwargs or {}).get("out")
            written += out if isinstance(out, (list, tuple)) else [out]
            views = self._shared.before_write([t for t in written if isinstance(t, torch.Tensor)])
        result = func(*args, **kwargs) if kwargs else func(*args)
        if views:
            self._shared.after_write(views)
        if self._frames is not None and not autograd_engine.in_backward():
            self._line(self._frames, func, result)
        return result

    def _line(self, frames: Frames, func: object, result: object) -> None:
        """Pass on the tensors in the `result` of an op if the user's line is among the requested ones."""
        if not isinstance(result, (torch.Tensor, tuple, list)):
            return
        if getattr(func, "__name__", "") == "__get__" and _name(func) not in _OPS:
            return
        site = frames.site(frames.spot(_frame(2)))
        if site is None or self._on_result is None or (self._lines is not None and site not in self._lines):
            return
        with modes.disable_function_modes():
            for suffix, tensor in named_tensors(result)[0]:
                self._on_result(site, _name(func), suffix, tensor)
