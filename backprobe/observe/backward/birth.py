"""Where in the forward a value that is not finite was born, found when its backward begins.

Note [What a graph tells of its forward]: nothing has to have been watched. Nodes keep what went into them, or what they
gave, until their backward frees it, and a tensor that is kept says which node made it. What no node has kept is
computed again from what the node has, where its formula is one of a few; operations that make finite values of finite
ones are taken to have done so. No hook on saved tensors runs, and a tensor that was written in place since, or whose
memory is gone, is not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ...graphs.plan import ACCUMULATE, VIEW_NODES
from ...records import BadValues, TensorStat
from ...torchside import private
from ...torchside.measure import FLOATS, bad_values, stat_of, sum_of
from ...torchside.walk import LiveGraph

_CONTAINED = (RuntimeError, NotImplementedError, TypeError, AttributeError, ValueError, KeyError, IndexError)


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Give finite values for finite ones, but for an overflow.
_CALM = _names(
    "Add Sub Rsub Neg Sum Mean Abs Relu Threshold LeakyRelu Elu Gelu Silu Hardtanh Hardswish Sigmoid Tanh Softplus "
    "LogSigmoid Sin Cos Atan Erf Clamp ClampMin ClampMax Maximum Minimum Max Min Amax Amin Topk Sort Where Cat Stack "
    "Index IndexSelect Gather Scatter ScatterAdd IndexAdd IndexPut Slice Select Split SplitWithSizes Unbind Chunk "
    "Expand Repeat RepeatInterleave Roll Flip Tril Triu ConstantPadNd ReflectionPad1D ReflectionPad2D ToCopy Copy "
    "CopySlices AsStrided Diagonal Unfold Mul Addmm Mm Bmm Baddbmm Mv Dot Convolution MkldnnConvolution "
    "CudnnConvolution ConvolutionOverrideable Embedding EmbeddingBag NativeDropout FusedDropout AvgPool2D "
    "MaxPool2DWithIndices AdaptiveAvgPool2D UpsampleBilinear2D UpsampleNearest2D MseLoss NllLoss NllLoss2D "
    "SmoothL1Loss HuberLoss Cumsum MaskedFill IndexFill Fill MaskedSelect Lerp Addcmul Round Floor Ceil Sign Square "
    "Detach Trunc"
)
#: Put a constant somewhere: an Inf of theirs is meant.
_FILLS = _names("MaskedFill IndexFill Where Fill Triu Tril ConstantPadNd CopySlices Scatter")
#: Take in a tensor outside the graph without keeping it.
_TAKES_IN = _names("Add Sub Rsub Cat Stack Where IndexPut CopySlices Scatter Copy")


@dataclass(frozen=True)
class Birth:
    """Where what is not finite was born.

    :ivar node: the number in the graph of the node whose forward gave it first, or took it in.
    :ivar how: ``made``: that forward made it of finite values; ``leaf``: it was in the leaf that this node belongs to;
        ``outside``: it came in at this node, from a tensor that has no graph.
    :ivar kept: what the node had kept.
    :ivar output: what was not finite of what it gave, where that is there or could be computed again.
    :ivar sure: it is known of the node's result and of all that went in; else nothing else is left that could have.
    """

    node: int
    how: str
    kept: tuple[TensorStat, ...] = ()
    output: BadValues | None = None
    sure: bool = True


def birth(graph: LiveGraph, starts: Iterable[int]) -> Birth | None:
    """Where what is not finite in the results of the nodes `starts` was born; ``None`` where that cannot be told.

    Reads what the nodes between keep, and waits for the device. Raises nothing, runs nobody's hooks and holds nothing.
    To be called before the backward has freed anything.
    """
    was = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        with private.unseen(), private.unnoticed():
            search = _Search(graph, starts)
            search.go_down()
            return search.found()
    finally:
        torch._C._set_grad_enabled(was)


def bad_storages(graph: LiveGraph, i: int) -> list[tuple[int, bool]]:
    """The memory of what node `i` keeps of others that is not finite, and whether something else than torch in this
    process made the values: memory of NumPy or of another process, a number of Python's."""
    with private.unseen(), private.unnoticed(), torch.no_grad():
        search = _Search(graph, ())
        kept = [t for _, t, own in search.kept(graph.nodes[i]) if not own and search.measured(t) is not None]
        memory = [(t, t.untyped_storage()) for t in kept]
        return [(own.data_ptr(), not t.shape or own.is_shared() or not own.resizable()) for t, own in memory]


class _Search:
    """Goes down from bad results through all that is not known to be finite, then looks where that began."""

    def __init__(self, graph: LiveGraph, starts: Iterable[int]) -> None:
        self._nodes, self._plan = graph.nodes, graph.plan
        self._number = {node: i for i, node in enumerate(graph.nodes)}
        self._starts = list(starts)
        self._attributes: dict[type, Any] = {}
        #: By the address and version of a tensor: what is bad in it.
        self._looked: dict[tuple[int, int, Any], BadValues | None] = {}
        #: Nodes whose result is known: what is bad in it, ``None`` where it is finite.
        self._result: dict[int, BadValues | None] = {}
        #: Results that are finite, of nodes that have several.
        self._fine: set[tuple[int, int]] = set()
        #: Bad results by fact, of which nothing more is known.
        self._bad: set[int] = set(self._starts)
        #: Nodes that keep something bad of which no node is the maker.
        self._outside: set[int] = set()
        self._order: list[int] = []

    def go_down(self) -> None:
        """Look at what each node keeps that a bad result can have come through, and put them in order, inputs first."""
        seen = set(self._starts)
        stack: list[tuple[int, bool]] = [(i, False) for i in reversed(self._starts)]
        while stack:
            i, left = stack.pop()
            if left:
                self._order.append(i)
                continue
            self._look(i)
            stack.append((i, True))
            if i in self._result and i not in self._bad:
                continue
            for edge in self._plan.edges(i):
                if edge is not None and edge[0] not in seen and edge not in self._fine:
                    seen.add(edge[0])
                    stack.append((edge[0], False))

    def _look(self, i: int) -> None:
        node, plan = self._nodes[i], self._plan
        if plan.names[i] == ACCUMULATE:
            self._note(i, node.variable)
            return
        kept: dict[str, Any] = {}
        for name, tensor, own in self.kept(node):
            if own:
                self._note(i, tensor)
                continue
            kept[name] = tensor
            maker = self._number.get(tensor.grad_fn) if tensor.grad_fn is not None else None
            if maker is not None:
                self._note(maker, tensor)
                if maker not in self._bad and self._result.get(maker, 0) is None:
                    self._fine.add((maker, tensor.output_nr))
            elif tensor.is_leaf and not tensor.requires_grad and not name.startswith("result"):
                bad = self.measured(tensor)
                if bad is not None and (bad.nan or i in self._bad):
                    self._outside.add(i)
        if i not in self._result:
            self._note(i, private.forward_again(_stem(plan.names[i]), node, kept))

    def _note(self, i: int, result: Any) -> None:
        """What was seen of a result of node `i`."""
        if not _readable(result):
            return
        bad = self.measured(result)
        if bad is not None or i not in self._result:
            self._result[i] = bad
        if bad is not None:
            self._bad.add(i)

    def kept(self, node: Any) -> list[tuple[str, Any, bool]]:
        """What a node keeps that can be read: name, tensor, and whether it is the node's own result."""
        kind = type(node)
        try:
            if kind not in self._attributes:
                self._attributes[kind] = private.saved_attributes(kind, node)
            views, _ = private.read_saved(node, self._attributes[kind])
        except _CONTAINED:
            return []
        return [
            (name, t, own) for name, t, own, changed, hook in views if not changed and hook is None and _readable(t)
        ]

    def measured(self, tensor: Any) -> BadValues | None:
        if not _readable(tensor):
            return None
        key = (tensor.data_ptr(), tensor._version, (tensor.shape, tensor.stride()))
        if key not in self._looked:
            total = sum_of(tensor) if tensor.shape else tensor  # torch adds up a number of Python's wrongly
            self._looked[key] = None if bool(torch.isfinite(total)) else bad_values(tensor)
        return self._looked[key]

    def found(self) -> Birth | None:
        """The first place in the order of the forward."""
        plan = self._plan
        #: Those that are finite, and those of them of which that is taken to be so.
        fine: set[int] = set()
        taken: set[int] = set()
        sure: list[int] = []
        doubtful: list[int] = []
        for i in self._order:
            name, result = plan.names[i], self._result.get(i)
            inputs = [edge[0] for edge in plan.edges(i) if edge and edge not in self._fine and edge[0] not in fine]
            meant = result is not None and not result.nan and _stem(name) in _FILLS
            known_fine = meant or (i in self._result and result is None and i not in self._starts)
            if known_fine and i not in self._outside:
                fine.add(i)
                self._bad.discard(i)
            elif any(j in self._bad for j in inputs):
                self._bad.add(i)  # passed on, as far as anybody can tell
            elif i in self._outside or (i in self._bad and not inputs):
                self._bad.add(i)
                sure.append(i)
            elif i in self._bad or not (inputs or name in VIEW_NODES or _stem(name) in _CALM):
                doubtful.append(i)
            elif not inputs:
                fine.add(i)
                taken.add(i)
        return self._told(sure, doubtful, taken)

    def _told(self, sure: list[int], doubtful: list[int], taken: set[int]) -> Birth | None:
        if sure:
            i, plan = sure[0], self._plan
            certain = i in self._outside or _stem(plan.names[i]) not in _CALM
            certain = certain or not any(edge and edge[0] in taken and edge not in self._fine for edge in plan.edges(i))
            return self._birth(i, None if certain else self._way_in(i), certain)
        left = [i for i in doubtful if i not in self._bad or _stem(self._plan.names[i]) not in _CALM]
        return self._birth(left[0], None, False) if len(left) == 1 else None

    def _way_in(self, i: int) -> int | None:
        """A node before `i` that may have taken in what nobody kept; ``None`` where there is none, or several."""
        ways, stack, seen = [], [i], {i}
        while stack:
            at = stack.pop()
            edges = self._plan.edges(at)
            if None in edges and _stem(self._plan.names[at]) in _TAKES_IN:
                ways.append(at)
            for edge in edges:
                if edge and edge[0] not in seen and edge not in self._fine and edge[0] not in self._result:
                    seen.add(edge[0])
                    stack.append(edge[0])
        return ways[0] if len(ways) == 1 else None

    def _birth(self, i: int, way_in: int | None, sure: bool) -> Birth:
        at = i if way_in is None else way_in
        leaf = self._plan.names[at] == ACCUMULATE
        outside = way_in is not None or i in self._outside or self._takes_in(i)
        how = "leaf" if leaf else "outside" if outside else "made"
        return Birth(at, how, () if leaf else self._stats(at), self._result.get(at), sure)

    def _takes_in(self, i: int) -> bool:
        """Whether `i` made something bad of what is finite, and can only have been given it."""
        return i in self._bad and None in self._plan.edges(i) and _stem(self._plan.names[i]) in _TAKES_IN

    def _stats(self, i: int) -> tuple[TensorStat, ...]:
        return tuple(stat_of(name, t) for name, t, own in self.kept(self._nodes[i]) if not own)


def _stem(name: str) -> str:
    """The operation that a node is the backward of, as its class is called."""
    return name.rstrip("0123456789").removesuffix("Backward")


def _readable(tensor: Any) -> bool:
    """Whether the values of `tensor` are there and can be read."""
    if not isinstance(tensor, torch.Tensor) or not private.is_plain(tensor) or tensor.dtype not in FLOATS:
        return False
    if tensor.layout is not torch.strided or private.is_wrapped(tensor) or tensor.is_meta or not tensor.numel():
        return False
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return not private.is_freed(tensor)
