"""Where the values go that an op took out of the graph: back into a graph, or only to a log.

Followed from tensor to tensor, and over a read into Python (``item``, ``tolist``, ``numpy``) to the tensor that is made
next in the same module call. In the steps that are looked at closely only.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ...torchside import private
from .eye import Op

_MAKERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy})
_LIMIT = 20_000


class Reentries:
    """Which cuts each tensor without a graph comes from."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Any], frozenset[Any]]] = {}
        #: Module call -> cuts of what was read into Python last in it.
        self._read: dict[Any, frozenset[Any]] = {}
        #: Cuts whose values entered a graph again, and in which step last.
        self.arrived: dict[Any, int] = {}
        self.step = 0

    @property
    def active(self) -> bool:
        return bool(self._of or self._read)

    def begin(self, key: Any, out: Any, stack: list[Any]) -> None:
        """The cut `key` gave `out`: a tensor, or a value read into Python."""
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
        for value in (*op.args, *op.kwargs.values()):
            for t in value if isinstance(value, (tuple, list)) else (value,):
                known = self._of.get(id(t))
                if known is not None and known[0]() is t:
                    cuts |= known[1]
        where = stack[-1] if stack else None
        if self._read and op.func in _MAKERS:
            cuts |= self._read.get(where, frozenset())
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

    def _mark(self, tensor: Any, cuts: frozenset[Any]) -> None:
        if len(self._of) > _LIMIT:
            self._of = {k: v for k, v in self._of.items() if v[0]() is not None}
            if len(self._of) > _LIMIT:
                self._of.clear()
        self._of[id(tensor)] = (private.tensor_ref(tensor), cuts)
