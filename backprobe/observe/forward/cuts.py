"""Where a path of the gradient is cut: ops that take a tensor with a graph and give something without one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

from ...records import Cut
from ...source.frames import Frames, Spot
from ...source.roots import Where
from .naming import Naming
from .oplog import op_name
from .reentry import Reentries

_Tensor = torch.Tensor
_frame = sys._getframe
_DATA = torch.Tensor.data.__get__
#: Calls that read a tensor's values into Python.
_READS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__")
)
#: Calls whose result does not depend on the values, or is not part of the forward.
NO_FLOW = frozenset(
    {
        *(getattr(torch, f"{n}_like") for n in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")),
        *(getattr(torch.Tensor, f"new_{n}") for n in ("zeros", "ones", "empty", "full", "tensor")),
        torch.Tensor.grad.__get__,  # type: ignore[attr-defined]
    }
)


@dataclass
class SeenCut:
    """An op that lost the gradient's path, and the ids of the leaves that it was lost for."""

    op: str
    spot: Spot | None
    where: Where | None
    leaves: frozenset[int]
    rank: int
    count: int = 1

    def record(self, names: Naming) -> Cut:
        return Cut(
            self.op,
            names.frames.site(self.spot),
            names.modules.name_of(self.where),
            tuple(sorted(names.leaves.names_of(self.leaves))),
            self.count,
        )


class Cuts:
    """The cuts by place and function.

    :param stack: the module calls that are running.
    """

    def __init__(self, frames: Frames, stack: list[Any]) -> None:
        self._frames, self._stack = frames, stack
        self._found: dict[Any, SeenCut] = {}
        #: Follows what was cut off: it may come back into a graph.
        self.traces = Reentries()
        #: Gradient mode was turned off by a library last: what it does then may cut a path too.
        self.library_off = False

    def note(self, func: Any, out: Any, args: Any) -> None:
        """Note an op that took a tensor with a graph and gave something without one."""
        if func in NO_FLOW or not (self.library_off or torch.is_grad_enabled()):
            return
        tensor_out = isinstance(out, _Tensor)
        if not tensor_out and func not in _READS:
            return
        sources = [a for a in tensors_in(args) if a.requires_grad]
        if not sources or (tensor_out and (out.requires_grad or any(out is a for a in args))):
            return
        spot = self._frames.spot(_frame(2))
        key = (spot, func)
        self.traces.begin(key, out, self._stack)
        known = self._found.get(key)
        if known is not None:
            known.count += 1
            return
        if len(self._found) > 1000:
            return
        stack = self._stack
        self._found[key] = SeenCut(
            op_name(func) if func != _DATA else "data",
            spot,
            stack[-1] if stack else None,
            leaves_of(sources),
            _rank(func, out, spot is not None and self._frames.is_user(_frame(2).f_code)),
        )

    def records(self, names: Naming) -> tuple[Cut, ...]:
        """Ops that lost a gradient's path, those with a tensor for a result first."""
        arrived = self.traces.arrived
        by_rank = sorted(self._found.items(), key=lambda c: (c[0] not in arrived, c[1].rank))
        return tuple(cut.record(names) for _, cut in by_rank)


def _rank(func: Any, out: Any, direct: bool) -> int:
    """How likely a cut is where the loss lost its path, lowest first: values, then indices, then what is only read. A
    library's own checks come after what the user's code calls."""
    if not isinstance(out, _Tensor):
        return 6 if func in (torch.Tensor.numpy,) else 8
    kind = 0 if out.is_floating_point() or out.is_complex() else 4 if out.dtype is torch.bool else 2
    return kind + (not direct)


def tensors_in(args: Any) -> list[Any]:
    """The tensors among arguments, and in lists and tuples there."""
    found = []
    for value in args:
        if isinstance(value, _Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(v for v in value if isinstance(v, _Tensor))
    return found


def leaves_of(tensors: list[Any], limit: int = 20_000) -> frozenset[int]:
    """Ids of the leaves that the graphs of `tensors` reach, looking at no more than `limit` nodes."""
    # A view made while gradient mode was off has no node of its own: its base has.
    tensors = [t._base if t.grad_fn is None and t._base is not None else t for t in tensors]
    leaves = {id(t) for t in tensors if t.grad_fn is None}
    nodes = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(nodes)
    for node in nodes:  # grows as we go
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.add(id(variable))
        for child, _ in node.next_functions:
            if child is not None and child not in seen and len(nodes) < limit:
                seen.add(child)
                nodes.append(child)
    return frozenset(leaves)
