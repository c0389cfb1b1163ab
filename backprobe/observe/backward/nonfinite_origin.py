"""Searches an autograd graph, when its backward begins, for the op that first produced a NaN or Inf.

For calls whose forward was not observed. In observed forwards, ``forward/values.py`` checks the results of ops, and
``findings/nonfinite/provenance.py`` derives the origin from these checks.

Note [Forward values from the graph]: this works without any earlier observation. Nodes save inputs or results until
their backward frees them, and a saved tensor says which node made it. A value that no node has saved is recomputed from
what the node has, or from the results of the nodes before it, if the op has a known formula. A number that was added is
not saved: it is assumed to be zero, and conclusions from that are uncertain. Ops that make finite values of finite
inputs are assumed to have done so. A NaN in the result of an op that makes none was in its input. No saved-tensor hook
runs, and a tensor is not read if it was written in place since it was saved, or if its memory has been released.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ...graphs.plan import ACCUMULATE
from ...ops import FINITE, NORMALISES, OVERFLOWS, POLE, canonical, info
from ...records import BadValues, TensorStat
from ...torch_internals import private
from ...torch_internals.measure import FLOATS, bad_values, stat_of, sum_of
from ...torch_internals.walk import LiveGraph

_REPLAY_ERRORS = (RuntimeError, NotImplementedError, TypeError, AttributeError, ValueError, KeyError, IndexError)


@dataclass(frozen=True)
class NonFiniteOrigin:
    """The place in the forward where a non-finite value first appeared.

    :ivar node: the index in the graph of the node whose forward first made the value, or received it.
    :ivar how: ``made``: that forward made the value from finite ones; ``leaf``: it was in the leaf that this node
        belongs to; ``outside``: it entered at this node, from a tensor that has no graph.
    :ivar kept: statistics of the node's saved tensors.
    :ivar output: the non-finite values in the node's result, if the result exists or could be recomputed.
    :ivar sure: the node's result and all its inputs are known; otherwise the node is what remains after excluding
        others.
    :ivar masked: an Inf that was put there on purpose, as by a mask, went in, and no other bad input is known.
    :ivar others: other nodes whose forward may have made the value.
    """

    node: int
    how: str
    kept: tuple[TensorStat, ...] = ()
    output: BadValues | None = None
    sure: bool = True
    masked: bool = False
    others: tuple[int, ...] = ()


def nonfinite_origin(graph: LiveGraph, starts: Iterable[int]) -> NonFiniteOrigin | None:
    """Return where the non-finite values in the results of the nodes `starts` first appeared; ``None`` if unknown.

    Reads the saved tensors of the nodes in between, and waits for the device. Raises nothing, runs no hooks and keeps
    no references. Call it before the backward has freed anything.
    """
    was = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        with private.disable_function_modes(), private.hide_ops():
            search = _OriginSearch(graph, starts)
            search.read_saved_tensors()
            return search.first_origin()
    finally:
        torch._C._set_grad_enabled(was)


def bad_storages(graph: LiveGraph, i: int) -> list[tuple[int, bool]]:
    """Return the storages of node `i`'s saved inputs that hold non-finite values: (address, foreign) for each.

    `foreign`: code other than torch in this process made the values: the memory belongs to NumPy or another process, or
    the value is a Python number.
    """
    with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
        search = _OriginSearch(graph, ())
        kept = [
            t for _, t, own in search.saved_tensors(graph.nodes[i]) if not own and search.bad_values_in(t) is not None
        ]
        memory = [(t, t.untyped_storage()) for t in kept]
        return [(own.data_ptr(), not t.shape or own.is_shared() or not own.resizable()) for t, own in memory]


class _OriginSearch:
    """Walks from bad results down through everything that is not known to be finite, then finds the first bad value."""

    def __init__(self, graph: LiveGraph, starts: Iterable[int]) -> None:
        """Prepare a search from the nodes with the positions `starts`, whose results are bad."""
        self._nodes, self._plan, self._seqs = graph.nodes, graph.plan, graph.seqs
        self._number_of = {node: i for i, node in enumerate(graph.nodes)}
        self._starts = list(starts)
        self._attributes: dict[type, tuple[tuple[str, str, str], ...]] = {}
        #: (Address, version, layout) of a tensor -> its non-finite values, ``None`` if it is finite.
        self._measured: dict[tuple[int, int, object], BadValues | None] = {}
        #: Node -> non-finite values in its result, ``None`` if it is finite. Only nodes whose result is known.
        self._result_values: dict[int, BadValues | None] = {}
        #: (Node, output) of finite results of nodes with several outputs.
        self._finite_outputs: set[tuple[int, int]] = set()
        #: Nodes whose result is bad.
        self._bad_nodes: set[int] = set(self._starts)
        #: Nodes that saved a non-finite tensor which no node made.
        self._external_nodes: set[int] = set()
        self._order: list[int] = []
        #: Node -> its first result, if it is known.
        self._results: dict[int, Any] = {}
        #: Nodes whose result was computed from the results of the nodes before them.
        self._computed_nodes: set[int] = set()
        #: Nodes whose result was computed with unknown numbers assumed to be zero.
        self._approximate_nodes: set[int] = set()
        #: Nodes whose result is unknown, and may contain an Inf that was put there on purpose.
        self._filled_nodes: set[int] = set()

    def read_saved_tensors(self) -> None:
        """Read the saved tensors of all nodes that a bad result can have passed, and sort the nodes, inputs first."""
        visited, stack = set(self._starts), self._starts[::-1]
        while stack:
            i = stack.pop()
            self._read_node(i)
            self._order.append(i)
            if i in self._result_values and i not in self._bad_nodes:
                continue
            for edge in self._plan.edges(i):
                if edge is not None and edge[0] not in visited and edge not in self._finite_outputs:
                    visited.add(edge[0])
                    stack.append(edge[0])
        self._order.sort(key=lambda i: -1 if self._plan.names[i] == ACCUMULATE else self._seqs[i])

    def _read_node(self, i: int) -> None:
        """Read what node `i` saved: note results of the nodes that made these tensors, and bad tensors that no node
        made.
        """
        node, plan = self._nodes[i], self._plan
        if plan.names[i] == ACCUMULATE:
            self._note_result(i, node.variable)
            return
        kept: dict[str, Any] = {}
        for name, tensor, own in self.saved_tensors(node):
            if own:
                self._note_result(i, tensor, name == "result" and tensor.output_nr == 0)
                continue
            kept[name] = tensor
            maker = self._number_of.get(tensor.grad_fn) if tensor.grad_fn is not None else None
            if maker is not None:
                self._note_result(maker, tensor, tensor.output_nr == 0)
                if maker not in self._bad_nodes and self._result_values.get(maker, 0) is None:
                    self._finite_outputs.add((maker, tensor.output_nr))
            elif tensor.is_leaf and not tensor.requires_grad and not name.startswith("result"):
                bad = self.bad_values_in(tensor)
                if bad is not None and (bad.nan or i in self._bad_nodes):
                    self._external_nodes.add(i)
        if i not in self._result_values:
            self._note_result(i, private.forward_again(canonical(plan.names[i]), node, kept))
        self._propagate_nan(i)

    def _propagate_nan(self, i: int) -> None:
        """If the result of node `i` has a NaN that must have been in its input, mark the node that made the input as
        NaN too.
        """
        bad, edges = self._result_values.get(i), self._plan.edges(i)
        name = self._plan.names[i]
        if bad is None or not bad.nan or len(edges) != 1 or edges[0] is None:
            return
        if info(name).reshapes or info(name).keeps_nan:
            before = edges[0][0]
            self._bad_nodes.add(before)
            self._result_values.setdefault(before, dataclasses.replace(bad, inf=0))

    def _note_result(self, i: int, result: object, first: bool = True) -> None:
        """Note whether a result of node `i` is finite, and keep the tensor if it is the node's `first` output."""
        if not _readable(result):
            return
        bad = self.bad_values_in(result)
        if bad is not None or i not in self._result_values:
            self._result_values[i] = bad
        if bad is not None:
            self._bad_nodes.add(i)
        if first:
            self._results.setdefault(i, result)

    def _compute(self, i: int) -> None:
        """Compute the result of node `i`, if it is not known, from the results of the nodes before it."""
        name, edges = self._plan.names[i], self._plan.edges(i)
        if i in self._results or name == ACCUMULATE:
            return
        operator, inputs = canonical(name), [self._results.get(e[0]) if e and e[1] == 0 else None for e in edges]
        guessed = operator == "rsub" or (operator in ("add", "sub") and None in edges)
        if operator in ("add", "sub"):
            inputs = [value if edge else 0.0 for value, edge in zip(inputs, edges, strict=True)]
        kept = {name: t for name, t, own in self.saved_tensors(self._nodes[i], any_dtype=True) if not own}
        value = private.forward_from_inputs(operator, self._nodes[i], kept, inputs)
        if value is None:
            return
        if guessed or any(edge and edge[0] in self._approximate_nodes for edge in edges):
            self._approximate_nodes.add(i)
        self._results[i] = value
        if (
            i not in self._result_values
            and _readable(value)
            and not (i in self._approximate_nodes and self.bad_values_in(value) is None)
        ):
            self._note_result(i, value)
            self._computed_nodes.add(i)

    def saved_tensors(self, node: object, any_dtype: bool = False) -> list[tuple[str, Any, bool]]:
        """Return the readable saved tensors of a node: (name, tensor, whether it is the node's own result) for each.

        :param any_dtype: include indices and masks.
        """
        kind = type(node)
        try:
            if kind not in self._attributes:
                self._attributes[kind] = private.saved_attributes(kind, node)
            views, _ = private.read_saved(node, self._attributes[kind])
        except _REPLAY_ERRORS:
            return []
        fits = _has_values if any_dtype else _readable
        return [(name, t, own) for name, t, own, changed, hook in views if not changed and hook is None and fits(t)]

    def bad_values_in(self, tensor: Any) -> BadValues | None:
        """Return the NaN and Inf in a tensor; ``None`` if it has none or cannot be read.

        Each tensor is measured once.
        """
        if not _readable(tensor):
            return None
        key = (tensor.data_ptr(), tensor._version, (tensor.shape, tensor.stride()))
        if key not in self._measured:
            total = sum_of(tensor) if tensor.shape else tensor  # torch sums a Python number wrongly
            self._measured[key] = None if bool(torch.isfinite(total)) else bad_values(tensor)
        return self._measured[key]

    def first_origin(self) -> NonFiniteOrigin | None:
        """Return the first place in forward order at which a non-finite value appears; ``None`` if no node can have
        made it.
        """
        plan = self._plan
        #: Nodes with finite results, and those of them that are only assumed to be finite.
        finite: set[int] = set()
        assumed: set[int] = set()
        sure: list[int] = []
        uncertain: list[int] = []
        for i in self._order:
            self._compute(i)
            name, result = plan.names[i], self._result_values.get(i)
            inputs = [
                edge[0] for edge in plan.edges(i) if edge and edge not in self._finite_outputs and edge[0] not in finite
            ]
            is_intended = result is not None and not result.nan and info(name).is_fill
            known_fine = is_intended or (i in self._result_values and result is None and i not in self._starts)
            if not known_fine and i not in self._results:
                self._propagate_fill(i)
            if known_fine and i not in self._external_nodes:
                finite.add(i)
                if is_intended:
                    self._filled_nodes.add(i)
                self._bad_nodes.discard(i)
            elif any(j in self._bad_nodes for j in inputs):
                self._bad_nodes.add(i)  # passed on, as far as is known
            elif i in self._external_nodes or (i in self._bad_nodes and not inputs):
                self._bad_nodes.add(i)
                sure.append(i)
            elif i in self._bad_nodes or self._may_make_nonfinite(i):
                uncertain.append(i)
            elif not inputs:
                finite.add(i)
                assumed.add(i)
        return self._first_origin(sure, uncertain, assumed)

    def _keeps_finite(self, i: int) -> bool:
        """Return whether node `i` makes finite results of finite inputs, except for an overflow."""
        name = self._plan.names[i]
        if name == ACCUMULATE or info(name).forward == FINITE:
            return True
        if canonical(name) == "div":
            by = next((t for kept, t, _ in self.saved_tensors(self._nodes[i]) if kept == "other"), None)
            return by is not None and self.bad_values_in(by) is None and bool((by != 0).all())
        if canonical(name) == "pow":
            return private.raises_to_natural_number(self._nodes[i])
        return False

    def _may_make_nonfinite(self, i: int) -> bool:
        """Return whether node `i`, whose result is unknown, may have made non-finite values of finite ones."""
        if not self._keeps_finite(i):
            return True
        operator, edges = info(self._plan.names[i]), self._plan.edges(i)
        if operator.name == "sub" and all(edge and edge[0] in self._filled_nodes for edge in edges):
            return True
        return operator.amplifies and private.result_of(self._nodes[i])[1] is torch.float16

    def _propagate_fill(self, i: int) -> None:
        """Mark node `i` if its result may contain an Inf that was put there on purpose."""
        edges = self._plan.edges(i)
        if info(self._plan.names[i]).is_fill or (
            self._keeps_finite(i) and any(edge and edge[0] in self._filled_nodes for edge in edges)
        ):
            self._filled_nodes.add(i)

    def _is_masked(self, i: int) -> bool:
        """Return whether an Inf that was put there on purpose may have gone into node `i`."""
        return any(edge and edge[0] in self._filled_nodes for edge in self._plan.edges(i))

    def _first_origin(self, sure: list[int], uncertain: list[int], assumed: set[int]) -> NonFiniteOrigin | None:
        """Choose the origin among the nodes that may have made the first bad value.

        :param sure: nodes with a bad result and no bad input, in forward order; the first is the origin if there is
            one.
        :param uncertain: nodes whose result is not known; the riskiest is the origin if `sure` is empty.
        :param assumed: nodes whose result is only assumed to be finite.
        """
        if sure:
            i, plan = sure[0], self._plan
            operator = info(plan.names[i])
            normalises = operator.forward == NORMALISES
            keeps_finite = operator.forward == FINITE or (normalises and not self._is_masked(i))
            certain = i in self._external_nodes or not keeps_finite
            certain = certain or not any(
                edge and edge[0] in assumed and edge not in self._finite_outputs for edge in plan.edges(i)
            )
            certain = certain and i not in self._approximate_nodes
            mixes = self._is_masked(i) and operator.mixes_inf
            return self._origin_at(
                i,
                None if certain or mixes or i in self._computed_nodes or normalises else self._unsaved_entry(i),
                certain,
            )
        left = [i for i in uncertain if i not in self._bad_nodes or self._may_make_nonfinite(i)]
        left.sort(key=self._risk)  # stable: the first of the forward comes first
        return self._origin_at(left[0], None, False, tuple(left[1:])) if left else None

    def _risk(self, i: int) -> int:
        """Return a rank of how likely node `i` made a non-finite value, from its op alone: 0 is likeliest, 2 least
        likely.
        """
        operator = info(self._plan.names[i])
        if (operator.forward == NORMALISES or operator.name == "sub") and self._is_masked(i):
            return 0
        if operator.forward == POLE:
            return 1 if operator.name == "div" and self._plan.edges(i)[1] is None else 0
        return 1 if operator.forward in (OVERFLOWS, NORMALISES) else 2

    def _unsaved_entry(self, i: int) -> int | None:
        """Return the node before `i` that may have received a value that no node saved.

        Returns ``None`` if there is none, or several.
        """
        entries, stack, visited = [], [i], {i}
        while stack:
            at = stack.pop()
            edges = self._plan.edges(at)
            if None in edges and info(self._plan.names[at]).forgets_inputs:
                entries.append(at)
            for edge in edges:
                if (
                    edge
                    and edge[0] not in visited
                    and edge not in self._finite_outputs
                    and edge[0] not in self._result_values
                ):
                    visited.add(edge[0])
                    stack.append(edge[0])
        return entries[0] if len(entries) == 1 else None

    def _origin_at(self, i: int, entry: int | None, sure: bool, others: tuple[int, ...] = ()) -> NonFiniteOrigin:
        """Return the origin at node `i`, or at the node `entry` before it, with what is known of the values there."""
        at = i if entry is None else entry
        leaf = self._plan.names[at] == ACCUMULATE
        outside = entry is not None or i in self._external_nodes or self._has_unsaved_bad_input(i)
        how = "leaf" if leaf else "outside" if outside else "made"
        kept, normalises = () if leaf else self._stats(at), info(self._plan.names[at]).forward == NORMALISES
        masked = self._is_masked(i) or (normalises and self._result_values.get(at) is not None)
        return NonFiniteOrigin(at, how, kept, self._result_values.get(at), sure, how == "made" and masked, others)

    def _has_unsaved_bad_input(self, i: int) -> bool:
        """Return whether an input of `i` that was not saved must have been bad.

        That is the case if the result is bad and all known inputs are finite.
        """
        return i in self._bad_nodes and None in self._plan.edges(i) and info(self._plan.names[i]).forgets_inputs

    def _stats(self, i: int) -> tuple[TensorStat, ...]:
        """Return the statistics of the tensors that node `i` saved, without its own result."""
        return tuple(stat_of(name, t) for name, t, own in self.saved_tensors(self._nodes[i]) if not own)


def _readable(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is floating point, and its values exist and can be read."""
    return _has_values(tensor) and tensor.dtype in FLOATS


def _has_values(tensor: object) -> bool:
    """Return whether `tensor` is a plain tensor with elements that can be read now."""
    if not isinstance(tensor, torch.Tensor) or not private.is_plain(tensor):
        return False
    if tensor.layout is not torch.strided or private.is_wrapped(tensor) or tensor.is_meta or not tensor.numel():
        return False
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return not private.is_freed(tensor)
