"""Where the values go that an op took out of the graph: back into a graph, or only to a log.

Followed from tensor to tensor, and over a read into Python (``item``, ``tolist``, ``numpy``) to the tensor that is made
next in the same module call. In the steps that are looked at closely only.

``numpy`` and ``from_numpy`` may tell nobody that they were called: in a function that calls both, a tensor over memory
that is not torch's is taken for what came of the values that it took out of the graph.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Any

import torch

from ...source.frames import Frames
from ...torch_internals import private
from .torch_call_recorder import Op

_MAKERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
_THERE_AND_BACK = frozenset({torch.Tensor.numpy.__name__, torch.from_numpy.__name__})
_LIMIT = 20_000


class GraphReentry:
    """Which cuts each tensor without a graph comes from."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._of: dict[int, tuple[weakref.ref[Any], frozenset[Any]]] = {}
        #: Module call -> cuts of what was read into Python last in it.
        self._read: dict[Any, frozenset[Any]] = {}
        #: Cuts whose values entered a graph again, and in which step last.
        self.arrived: dict[Any, int] = {}
        #: Function that gives values to NumPy and makes tensors of its arrays -> cuts in it.
        self._back: dict[CodeType, frozenset[Any]] = {}
        #: Cuts whose values came back that way.
        self.numpy: set[Any] = set()
        self.step = 0

    @property
    def active(self) -> bool:
        return bool(self._of or self._read)

    def begin(self, key: Any, out: Any, stack: list[Any]) -> None:
        """The cut `key` gave `out`: a tensor, or a value read into Python."""
        code = key[0][0] if key[0] is not None else None
        if code is not None and _THERE_AND_BACK.issubset(code.co_names):
            self._back[code] = self._back.get(code, frozenset()) | {key}
        if isinstance(out, torch.Tensor):
            self._mark(out, frozenset((key,)))
        else:
            where = stack[-1] if stack else None
            self._read[where] = frozenset((key,))
            if len(self._read) > 1000:
                self._read.clear()

    def flow(self, op: Op, stack: list[Any]) -> None:
        """An op's result comes from all that went into it."""
        cuts: frozenset[Any] = frozenset()
        where = stack[-1] if stack else None
        read = self._read.get(where, cuts) if self._read else cuts
        for value in (*op.args, *op.kwargs.values()):
            for t in value if isinstance(value, (tuple, list)) else (value,):
                known = self._of.get(id(t))
                if known is not None and known[0]() is t:
                    cuts |= known[1]
                elif self._back and t.__class__ is torch.Tensor and _is_foreign(t):
                    back = self._made_in(op.frame)
                    self.numpy |= back
                    cuts |= back
        if read and op.func in _MAKERS:
            cuts |= read
        if not cuts:
            return
        out = op.out
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if not isinstance(t, torch.Tensor):
                if isinstance(t, (int, float, bool, list)) or type(t).__module__ == "numpy":
                    self._read[where] = cuts
            elif t.requires_grad and not t.is_leaf:
                self.arrived |= dict.fromkeys(cuts, self.step)
            else:
                self._mark(t, cuts)

    def _made_in(self, frame: Any) -> frozenset[Any]:
        """Cuts in the user's function of `frame`, where it gives values to NumPy and takes some back."""
        spot = self._frames.spot(frame)
        return self._back.get(spot[0], frozenset()) if spot is not None else frozenset()

    def _mark(self, tensor: Any, cuts: frozenset[Any]) -> None:
        if len(self._of) > _LIMIT:
            self._of = {k: v for k, v in self._of.items() if v[0]() is not None}
            if len(self._of) > _LIMIT:
                self._of.clear()
        self._of[id(tensor)] = (private.tensor_ref(tensor), cuts)


def _is_foreign(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor that needs no gradient is somebody else's."""
    plain = tensor.layout is torch.strided and not tensor.requires_grad
    return plain and not private.is_wrapped(tensor) and not tensor.untyped_storage().resizable()
