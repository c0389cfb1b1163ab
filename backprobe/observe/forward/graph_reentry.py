"""Follows detached values and finds those that enter a graph again, as opposed to those that are only logged.

Values are followed from tensor to tensor, and through a read into Python (``item``, ``tolist``, ``numpy``) to the
tensor that is made next in the same module call. Only closely inspected steps are followed.

Calls of ``numpy`` and ``from_numpy`` may go unobserved. In a function that calls both, a tensor over memory that torch
did not allocate is therefore assumed to come from the values that the function detached.
"""

from __future__ import annotations

import weakref
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from ...source.frames import Frames
from ...torch_internals import private
from .torch_call_recorder import Op

_TENSOR_CONSTRUCTORS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
_NUMPY_ROUND_TRIP = frozenset({torch.Tensor.numpy.__name__, torch.from_numpy.__name__})
_MAX_ENTRIES = 20_000


class _Cut(NamedTuple):
    """A detach point that a value comes from, and whether numbers became indices, counts or conditions on the way."""

    key: object
    is_index: bool = False


class GraphReentry:
    """Map from each tensor without a graph to the detach points that its values come from."""

    def __init__(self, frames: Frames) -> None:
        """Start without values."""
        self._frames = frames
        self._of: dict[int, tuple[weakref.ref[object], frozenset[_Cut]]] = {}
        #: Module call -> detach points of the value that it last read into Python.
        self._read: dict[object, frozenset[_Cut]] = {}
        #: Detach points whose values entered a graph again -> the latest step in which they did.
        self.arrived: dict[object, int] = {}
        #: Detach points of which a value entered a graph that was not only compared, counted or rounded to an index.
        self.by_value: set[object] = set()
        #: Function that calls both ``numpy`` and ``from_numpy`` -> the detach points in it.
        self._back: dict[CodeType, frozenset[object]] = {}
        #: Detach points whose values came back to torch through NumPy.
        self.numpy: set[object] = set()
        self.step = 0

    @property
    def active(self) -> bool:
        """Whether any value is followed."""
        return bool(self._of or self._read)

    def begin(self, key: Any, out: Any, stack: list[Any]) -> None:
        """Start to follow `out`, a tensor or a value read into Python, which the detach point `key` returned."""
        code = key[0][0] if key[0] is not None else None
        if code is not None and _NUMPY_ROUND_TRIP.issubset(code.co_names):
            self._back[code] = self._back.get(code, frozenset()) | {key}
        cuts = frozenset((_Cut(key),))
        if isinstance(out, torch.Tensor):
            self._mark(out, cuts)
        else:
            where = stack[-1] if stack else None
            self._read[where] = cuts
            if len(self._read) > 1000:
                self._read.clear()

    def flow(self, op: Op, stack: list[Any]) -> None:
        """Attribute an op's result to the detach points of all its inputs; record those that enter a graph again."""
        cuts: frozenset[_Cut] = frozenset()
        is_float = False
        where = stack[-1] if stack else None
        read = self._read.get(where, cuts) if self._read else cuts
        for value in (*op.args, *op.kwargs.values()):
            for t in value if isinstance(value, (tuple, list)) else (value,):
                known = self._of.get(id(t))
                if known is not None and known[0]() is t:
                    cuts |= known[1]
                    is_float |= isinstance(t, torch.Tensor) and t.is_floating_point()
                elif self._back and t.__class__ is torch.Tensor and is_foreign(t):
                    back = self._made_in(op.frame)
                    self.numpy |= back
                    cuts |= {_Cut(key) for key in back}
        if read and op.func in _TENSOR_CONSTRUCTORS:
            cuts |= read
        if not cuts:
            return
        out = op.out
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if not isinstance(t, torch.Tensor):
                if isinstance(t, (int, float, bool, list)) or type(t).__module__ == "numpy":
                    self._read[where] = cuts
            elif t.requires_grad and not t.is_leaf:
                self.arrived |= dict.fromkeys((cut.key for cut in cuts), self.step)
                self.by_value |= {cut.key for cut in cuts if not cut.is_index}
            else:
                is_index = is_float and not (t.is_floating_point() or t.is_complex())
                self._mark(t, frozenset(_Cut(cut.key, True) for cut in cuts) if is_index else cuts)

    def _made_in(self, frame: FrameType) -> frozenset[object]:
        """Return the detach points in the user function of `frame`, if it calls both ``numpy`` and ``from_numpy``."""
        spot = self._frames.spot(frame)
        return self._back.get(spot[0], frozenset()) if spot is not None else frozenset()

    def _mark(self, tensor: torch.Tensor, cuts: frozenset[_Cut]) -> None:
        """Follow `tensor` as one with values from the detach points `cuts`."""
        if len(self._of) > _MAX_ENTRIES:
            self._of = {k: v for k, v in self._of.items() if v[0]() is not None}
            if len(self._of) > _MAX_ENTRIES:
                self._of.clear()
        self._of[id(tensor)] = (private.tensor_ref(tensor), cuts)


def is_foreign(tensor: torch.Tensor) -> bool:
    """Return whether torch did not allocate the memory of `tensor`; false for a tensor that requires a gradient."""
    plain = tensor.layout is torch.strided and not tensor.requires_grad
    return plain and not private.is_wrapped(tensor) and not tensor.untyped_storage().resizable()
