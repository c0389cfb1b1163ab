"""Finds operations on the way to a loss that broadcast two inputs of the same batch against each other.

Note [Unintended broadcasts]: ``(8, 1)`` and ``(8,)`` are the same values by number, and an operation on both
gives ``(8, 8)``. It is reported if all of this holds:

- The shapes have different numbers of dimensions and are equal without the dimensions of size 1: torch, not the script,
  has put the missing dimension in front.
- Nothing inserted the dimension of size 1 on purpose: no ``None`` in an index, ``unsqueeze``, ``view`` or ``keepdim``
  in code that is still running. What a module returns counts as data, however its forward made it; so does what an
  operation gives of a tensor with such a dimension and of one that has had the same shape from the start.
- The result reaches the root of a backward call through functions of single elements, and sums or means. A table of
  pairs is used in another way: it meets a tensor of its own shape, a softmax, a diagonal, a matrix product.
- Neither input is a parameter or a buffer, and one is not a view of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from types import FrameType
from typing import Any, NamedTuple

import torch

from ...basics.torch_texts import COPIES
from ...ops import canonical, canonical_names, names_of
from ...records import SilentBroadcast
from ...source.frames import CodeLocation
from ...source.operands import takes_inputs
from ...source.roots import ModuleCallRef
from ...torch_internals import private
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import JOINS, SHAPES, TOTALS, TRANSPOSES, FollowedTensors
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor


#: Functions of single elements, and those that compute something.
_ELEMENTWISE = names_of(lambda row: row.is_elementwise)
_ARITHMETIC = _ELEMENTWISE - names_of(lambda row: row.reshapes or row.casts)
#: Losses of one element of each of their first two inputs.
_LOSSES = names_of(lambda row: row.is_elementwise_loss)
#: Uses of a table of pairs that say nothing about what it is for: logging, mostly.
_READS = canonical_names(
    "__get__ item tolist numpy size dim numel len var std var_mean std_mean norm vector_norm any all bool repr format "
    "backward retain_grad register_hook requires_grad_ is_floating_point is_complex _is_all_true data_ptr stride "
    "is_contiguous deepcopy reduce_ex"
)
#: Conditions on single elements, by whose result a script selects, as in a Huber loss that is written out.
_CONDITIONS = canonical_names(
    "gt lt ge le eq ne isnan isfinite isinf isclose logical_and logical_or logical_xor logical_not and or xor "
    "__invert__ __eq__ bitwise_and bitwise_or bitwise_xor bitwise_not"
)
#: Reads of a table of pairs if no dimension is given.
_EXTREMES = names_of(lambda row: row.is_extreme) | canonical_names("median")
#: Operations that may insert a dimension of size 1.
_INSERTIONS = names_of(lambda row: row.changes_shape) - canonical_names("squeeze flatten atleast_1d")
_INSERTIONS |= canonical_names("expand getitem")
_TRANSPOSED = (_Tensor.T.__get__, _Tensor.mT.__get__)  # type: ignore[attr-defined]
#: Maximum number of lines.
MAX_LINES = 100

#: Code, instruction and function of an operation.
_Key = tuple[CodeLocation | None, Any]


class _Derived(NamedTuple):
    """A tensor that was computed from results of broadcasts.

    :ivar whole: it has all elements of the result, and not sums of them.
    """

    origins: frozenset[_Key]
    whole: bool


@dataclass
class _Broadcast:
    """An operation that broadcasts; ``refuted``: it is meant. ``failed``: the line of a backward call it reaches.

    :ivar caller: the place that called the user's function in which it stands.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    result: tuple[int, ...]
    where: ModuleCallRef | None
    step: int
    refuted: bool = False
    reached: bool = False
    failed: CodeLocation | None = None
    caller: CodeLocation | None = None


class SilentBroadcasts(Tracker):
    """Tracker of operations that broadcast: Note [Unintended broadcasts]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without broadcasts."""
        self._context, self._modules = context, context.modules
        self._found: dict[_Key, _Broadcast] = {}
        # Of the running step. The latter are tensors in which the script inserted a dimension, or that have their shape
        # from one: the module call that did so, if one did.
        self._derived: FollowedTensors[_Derived] = FollowedTensors()
        self._inserted: FollowedTensors[tuple[ModuleCallRef | None]] = FollowedTensors()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the tensors of the last step."""
        self._derived.clear()
        self._inserted.clear()

    def observing_pauses(self) -> None:
        """Forget the tensors of the running step."""
        self._derived.clear()
        self._inserted.clear()

    def op_inspected(self, op: Op) -> None:
        """Check whether an op broadcasts by mistake, follow results of earlier broadcasts, and note inserted
        dimensions.
        """
        if self._context.recorder.in_builtin_optimizer or private.in_transform():
            return  # a closure that an optimizer's step calls is a forward, though
        tensors = op.tensors()
        if not tensors or not all(map(private.is_dense, tensors)):
            return
        name = canonical(op_name(op.func))
        if len(tensors) > 1 and (name in _ARITHMETIC or name in _LOSSES):
            self._check(op, name, tensors)
        if self._derived:
            self._follow(op, name, tensors)
        if type(op.out) is _Tensor and private.is_dense(op.out):
            self._note_insertion(op, name, tensors)

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Note which broadcasts reach the roots of a call."""
        for known in self._derived.of(running.roots):
            for key in known.origins if not known.whole else ():
                found = self._found[key]
                found.reached, found.failed = True, found.failed or running.spot

    # Broadcasts

    def _check(self, op: Op, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Note the operation `name` if it pairs all elements of two inputs with each other; refute it if that is
        meant.
        """
        for one, other in combinations(tensors[:3], 2):
            if one.dim() == other.dim():
                continue
            shapes = tuple(one.shape), tuple(other.shape)
            result = _broadcast(*shapes)
            larger = result is not None and prod(result) > max(one.numel(), other.numel())
            if result is None or not larger or (name in _ARITHMETIC and op.out.shape != result):
                continue
            key = self._context.frames.spot_of_op(op.frame), op.func
            if not _same_elements(*shapes) or self._is_meant(op, name, one, other):
                if key in self._found:
                    self._found[key].refuted = True
                continue
            if key not in self._found:
                if len(self._found) >= MAX_LINES:
                    return
                stack = self._modules.stack
                where = stack[-1] if stack else None
                inner = self._context.frames.first(op.frame)
                caller = self._context.frames.spot(inner.f_back) if inner is not None else None
                self._found[key] = _Broadcast(shapes, result, where, self._context.steps.index, caller=caller)
            reduced = name in _LOSSES and op.out.shape != result
            self._derive(op.out, frozenset((key,)), not reduced)

    def _is_meant(self, op: Op, name: str, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Return whether the script, or a model, pairs the elements on purpose."""
        if one.data_ptr() == other.data_ptr() or any(map(self._is_state, (one, other))):
            return True
        if name in _LOSSES and op.out.dim() == 0:
            return False
        longer = one if one.dim() > other.dim() else other
        inserted = self._inserted.get(longer)
        return inserted is not None and (inserted[0] is None or inserted[0] in self._modules.stack)

    def _is_state(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is a parameter, another leaf that learns, or a buffer of a module."""
        if tensor.is_leaf and tensor.requires_grad:
            return True
        return any(tensor is buffer for _, model in self._modules.models() for buffer in model.buffers())

    # What becomes of their results

    def _derive(self, tensor: object, origins: frozenset[_Key], whole: bool) -> None:
        """Follow `tensor` as computed from the broadcasts `origins`. `whole`: it has all elements of a result."""
        if type(tensor) is _Tensor:
            known = self._derived.get(tensor)
            if known is not None:
                origins, whole = origins | known.origins, whole and known.whole
            self._derived.put(tensor, _Derived(origins, whole))

    def _follow(self, op: Op, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Follow results of broadcasts through an operation, or note that it uses them as a table of pairs."""
        known = {id(t): found for t in tensors if (found := self._derived.get(t)) is not None}
        if not known:
            return
        origins = frozenset(key for one in known.values() for key in one.origins)
        tables = [t for t in tensors if id(t) in known and known[id(t)].whole]
        elementwise = (
            name in _ELEMENTWISE or name in _LOSSES or name in _CONDITIONS or (name in _EXTREMES and len(tensors) > 1)
        )
        if tables and not self._is_plain_use(op, name, elementwise, known, tables, tensors):
            for key in origins:
                self._found[key].refuted = True
        elif name in TOTALS:
            self._derive(op.out, origins, False)
        elif name in SHAPES:
            self._derive(op.out, origins, bool(tables))
        elif elementwise:
            if tables:
                self._derive(op.out, origins, name not in _LOSSES or op.out.dim() > 0)
            elif isinstance(op.out, _Tensor) and all(op.out.numel() == t.numel() for t in tensors if id(t) in known):
                self._derive(op.out, origins, False)
        elif name in JOINS and not tables:
            self._derive(op.out, origins, False)

    def _is_plain_use(
        self,
        op: Op,
        name: str,
        elementwise: bool,
        known: dict[int, _Derived],
        tables: Iterable[torch.Tensor],
        tensors: Iterable[torch.Tensor],
    ) -> bool:
        """Return whether an operation uses no property of a table of pairs: which pair an element belongs to."""
        if elementwise:
            others = (t for t in tensors if id(t) not in known)
            return not any(t.dim() > 1 and t.shape == table.shape for t in others for table in tables)
        if name in _EXTREMES:
            return isinstance(op.out, _Tensor) and op.out.dim() == 0
        if name == "getitem":
            return type(op.args[1]) in (int, slice)
        return name in TOTALS or name in SHAPES or name in _READS or op.func in _READ_FUNCTIONS

    # Dimensions that are inserted

    def _note_insertion(self, op: Op, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Note that the script inserted a dimension into the result of an op, or that the result has one from its
        inputs.
        """
        out, marked = op.out, [t for t in tensors if self._inserted.get(t) is not None]
        within: ModuleCallRef | None
        if marked and (
            (name in _ELEMENTWISE and any(out.shape == t.shape for t in marked) and not self._is_matched(out, tensors))
            or name in TRANSPOSES
            or op.func in _TRANSPOSED
        ):
            (within,) = self._inserted.of(marked)[0]
        elif 1 in out.shape and (
            (name in _INSERTIONS and (name != "getitem" or _has_new_dimension(op.args[1])))
            or op.kwargs.get("keepdim") is True
            or any(one is True for one in op.args[1:])
        ):
            stack = self._modules.stack
            within = stack[-1] if stack else None
        else:
            return
        self._inserted.put(out, (within,))

    def _is_matched(self, out: torch.Tensor, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether a tensor into which no dimension was inserted has the shape of `out`: one was inserted to
        match it, and not to make a table of pairs."""
        return any(t.shape == out.shape and self._inserted.get(t) is None for t in tensors)

    def records(self) -> tuple[SilentBroadcast, ...]:
        """Return a record of each broadcast that reaches the root of a backward call and is not refuted."""
        site, place = self._context.frames.site, self._modules.place_of
        return tuple(
            SilentBroadcast(
                canonical(op_name(func)),
                one.shapes,
                one.result,
                site(spot),
                place(one.where),
                one.step,
                site(one.failed),
                site(one.caller) if takes_inputs(site(spot)) else None,
            )
            for (spot, func), one in self._found.items()
            if one.reached and not one.refuted
        )


_READ_FUNCTIONS = frozenset(
    getattr(_Tensor, name)
    for name in ("__float__", "__int__", "__bool__", "__repr__", "__format__", "__len__", "__array__", COPIES)
)


def _has_new_dimension(index: object) -> bool:
    """Return whether an index contains ``None``, which inserts a dimension."""
    return index is None or (type(index) is tuple and any(one is None for one in index))


def _broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape to which two shapes broadcast; ``None`` if they do not."""
    try:
        return tuple(torch.broadcast_shapes(one, other))
    except RuntimeError:
        return None


def _same_elements(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two shapes are equal without the dimensions of size 1."""
    return [n for n in one if n != 1] == [n for n in other if n != 1]
