"""Detach points: ops that take a tensor that requires a gradient and return a result without a graph."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from ...ops import names_of
from ...records import COLLECTIVES, Cut
from ...source.calls import calls_of_method
from ...source.frames import CodeLocation, variables
from ...source.roots import ModuleCallRef
from ...source.sites import site_at
from ...torch_internals import code_objects, private
from ...torch_internals.structure import tensors_in
from .graph_reentry import GraphReentry
from .naming import Naming
from .oplog import op_name
from .torch_call_recorder import Op

_Tensor, _ref = torch.Tensor, private.tensor_ref
_DATA = torch.Tensor.data.__get__
#: Calls that read a tensor's values into Python.
_READS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__")
)
_CREATORS = names_of(lambda row: row.creates)
#: Calls whose result does not depend on the values, or is not part of the forward.
VALUE_INDEPENDENT = frozenset(
    {
        *(getattr(torch, f"{n}_like") for n in _CREATORS if hasattr(torch, f"{n}_like")),
        *(getattr(torch.Tensor, f"new_{n}") for n in _CREATORS if hasattr(torch.Tensor, f"new_{n}")),
        torch.Tensor.grad.__get__,  # type: ignore[attr-defined]
    }
)

#: How many calls per (line, function) have their graph walked: one line may detach several paths.
_MAX_WALKS_PER_LINE = 8


@dataclass
class ObservedCut:
    """An op whose result is detached, and references to the leaves whose gradient path it cuts, by id."""

    op: str
    spot: CodeLocation | None
    where: ModuleCallRef | None
    leaves: dict[int, weakref.ref[torch.Tensor]]
    rank: int
    step: int = 0
    count: int = 1
    #: Every source was a leaf, so the result copies parameters. Reported only if the copy enters a graph again.
    copied: bool = False

    def record(self, names: Naming, arrived: int | None, numpy: bool = False) -> Cut:
        """Return the record of this detach point.

        :param arrived: the step in which the detached value entered a graph again; ``None`` if it did not.
        :param numpy: it passed through NumPy on the way.
        """
        return Cut(
            self.op,
            names.frames.site(self.spot),
            names.modules.place_of(self.where),
            tuple(sorted(names.leaves.names_of(self.leaves.values()))),
            self.count,
            self.step,
            arrived,
            numpy=numpy,
        )


class DetachPoints:
    """Collector of the detach points of a run, by source line and function."""

    def __init__(self, names: Naming) -> None:
        """Start without detach points."""
        self._names, self._frames, self._modules = names, names.frames, names.modules
        self._found: dict[object, ObservedCut] = {}
        #: Follows the detached values: they may enter a graph again.
        self._reentries = GraphReentry(names.frames)
        #: Whether library code turned gradient mode off last: an op run without gradients may be a detach point then,
        #: too.
        self._library_off = False
        self._step, self._inspecting = 0, True

    def op_inspected(self, op: Op) -> None:
        """Note an op whose result is detached, and follow detached values through all ops."""
        if self._reentries.active:
            self._reentries.flow(op, self._modules.stack)
        if op.optimizing:
            return
        if op.after == op.before:
            self._note(op.func, op.out, op.args, op.frame)
        elif isinstance(op.out, tuple) and len(op.out) == 2 and not getattr(op.out[1], "requires_grad", True):
            self._note(op.func, op.out[1], op.args, op.frame)  # the indices of max, sort, topk

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Note the number of the step, and whether it is closely inspected: only then detach points are noted."""
        self._step, self._inspecting = step, inspecting
        self._reentries.step = step

    def data_read(self, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """Note a read of ``tensor.data`` as a detach point, in closely inspected steps."""
        if self._inspecting:
            self._note(_DATA, out, (tensor,), frame)

    def memory_read(self, func: object, tensor: torch.Tensor, out: object, frame: FrameType) -> None:
        """Note a call such as ``tensor.numpy()`` as a detach point, in closely inspected steps."""
        if self._inspecting:
            self._note(func, out, (tensor,), frame)

    def grad_mode_set(self, on: bool, frame: FrameType) -> None:
        """Record the source line that turned gradient mode off last.

        It is the user's line that called a library, if code of a library other than torch did so.
        """
        frames, modules = self._frames, self._modules
        self._library_off = self._library_off and not on
        if on or not torch.is_grad_enabled():
            return
        code = frame.f_code
        if code_objects.is_decorator(code):  # @torch.no_grad(): the function's first line is the decorator's
            code = getattr(variables(frame).get(code_objects.DECORATED), "__code__", code)
            if frames.is_user(code):
                self._library_off = False
                modules.grad_off.last = site_at(code.co_filename, code.co_firstlineno, code.co_name)
                return
        self._library_off = not frames.is_user(code)
        if not code.co_filename.startswith(code_objects.TORCH):
            modules.grad_off.last = frames.site(frames.spot(frame))

    def _note(self, func: object, out: Any, args: Any, frame: FrameType) -> None:
        """Record an op that takes a tensor that requires a gradient and returns a result without a graph."""
        if func in VALUE_INDEPENDENT or not (self._library_off or torch.is_grad_enabled()):
            return
        tensor_out = isinstance(out, _Tensor)
        if not tensor_out and func not in _READS:
            return
        sources = [a for a in tensors_in(args, depth=2) if a.requires_grad]
        # torch.tensor([loss], requires_grad=True) begins a graph of its own: a new leaf, which no path leads through.
        # A view is none, and torch may refuse to say whether it is a leaf.
        begins_graph = tensor_out and out.requires_grad and not out._is_view() and out.is_leaf
        goes_on = tensor_out and ((out.requires_grad and not begins_graph) or any(out is a for a in args))
        if not sources or goes_on:
            return
        spot = self._frames.spot_of_op(frame)
        key = (spot, func)
        stack = self._modules.stack
        self._reentries.begin(key, out, stack)
        known = self._found.get(key)
        if known is not None:
            known.count += 1
            first = known.count <= _MAX_WALKS_PER_LINE
            known.leaves |= leaves_of(sources) if first else {id(s): _ref(s) for s in sources if s.grad_fn is None}
            known.copied &= all(s.is_leaf for s in sources)
            return
        if len(self._found) > 1000:
            return
        self._found[key] = ObservedCut(
            op_name(func) if func != _DATA else "data",
            spot,
            stack[-1] if stack else None,
            leaves_of(sources),
            _rank(func, out, spot is not None and self._frames.is_user(frame.f_code)),
            self._step,
            copied=tensor_out and all(s.is_leaf for s in sources),
        )

    def records(self) -> tuple[Cut, ...]:
        """Return the detach points, then the collectives that the user's code calls.

        Detach points whose result enters a graph again come first, then by rank (`_rank`). A collective's result has no
        graph, and its inputs are not observed, so the call site alone is reported.
        """
        arrived = self._reentries.arrived
        # ``state_dict``, moving averages and logging copy parameters: a copy that never enters a graph cuts no path.
        found = [(key, cut) for key, cut in self._found.items() if not cut.copied or key in arrived]
        numpy, by_value = self._reentries.numpy, self._reentries.by_value
        by_rank = sorted(
            found,
            key=lambda c: (c[0] not in arrived or c[0] in numpy, c[0] in arrived and c[0] not in by_value, c[1].rank),
        )
        calls = ((op, calls_of_method(self._frames, op)) for op in COLLECTIVES)
        collectives = (Cut(op, site, None, (), 0) for op, sites in calls for site, *_ in sites[:1])
        return (*(cut.record(self._names, arrived.get(key), key in numpy) for key, cut in by_rank), *collectives)


def _rank(func: object, out: object, direct: bool) -> int:
    """Return how likely a detach point is to explain a lost gradient, lowest first.

    Floating-point tensors come first, then integer tensors, boolean tensors and values read into Python. Ops that a
    library calls come after ops that the user's code calls directly.
    """
    if not isinstance(out, _Tensor):
        return 6 if func in (torch.Tensor.numpy,) else 8
    kind = 0 if out.is_floating_point() or out.is_complex() else 4 if out.dtype is torch.bool else 2
    return kind + (not direct)


def leaves_of(tensors: list[torch.Tensor], limit: int = 20_000) -> dict[int, weakref.ref[torch.Tensor]]:
    """Return references to the leaves that the graphs of `tensors` reach, by id, visiting at most `limit` nodes."""
    # A view made while gradient mode was off has no node of its own: its base has.
    tensors = [t._base if t.grad_fn is None and t._base is not None else t for t in tensors]
    leaves: dict[int, weakref.ref[torch.Tensor]] = {id(t): _ref(t) for t in tensors if t.grad_fn is None}
    nodes = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(nodes)
    for node in nodes:  # grows as we go
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves[id(variable)] = _ref(variable)
        for child, _ in node.next_functions:
            if child is not None and child not in seen and len(nodes) < limit:
                seen.add(child)
                nodes.append(child)
    return leaves
