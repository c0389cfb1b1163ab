"""Finds differences of two equal values, both with a graph, that give no gradient.

Note [Cancelling differences]: ``logp - old_logp`` is zero if the same model computes both from the same data, and what
flows into one side flows out of the other. A difference, a quotient or a distance is reported if all of this holds:

- Both sides have a graph, and the graphs are equal node by node, down to the same leaves and the same shared nodes. Or
  the graphs differ, as if one side was computed row by row and stacked: then the leaves must be the same, the values
  equal but for rounding, and the difference the argument of an exponential.
- If the graphs are equal, each side has a layer of its own, such as a matrix product: the script computed the value
  twice. If the sides share all layers, the difference has to be the argument of an exponential, as in a ratio of
  probabilities.
- A layer has an input without a graph, the data: the scale of a distribution that depends on no data may well be
  compared with itself in a formula for two distributions.
- In each observed step both sides are equal, element by element, and their rows differ from each other: a network
  that is dead, or begins with zeros, gives equal values for different data.
- The leaves were written to between the steps that count, and the difference is part of the graph of a backward call.

A place at which one side once had no graph, or another value, is never reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch

from ... import thresholds
from ...ops import canonical, canonical_names, names_of
from ...records import CancellingDifference, Site
from ...source.frames import CodeLocation
from ...source.operands import Compared, compared_on
from ...torch_internals import private
from ...torch_internals.async_scalars import capturing
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import DIFFERENCES, JOINS, LOSS_SUMS, FollowedTensors, nearest_leaves
from ..forward.oplog import op_name, spot_of
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_DIV, _KL, _EXP, _LOG, _CLONE, _RSUB = map(canonical, ("div", "kl_div", "exp", "log", "clone", "rsub"))
_DISTANCES = names_of(lambda row: row.is_distance)
_COMPARISONS = DIFFERENCES | {_DIV, _KL} | _DISTANCES
#: Operations through which a difference goes on its way to an exponential.
_TO_EXPONENTIAL = LOSS_SUMS | {"clamp"}
#: Nodes of layers with weights, and those of them whose input is never part of the graph.
_EMBEDDINGS = canonical_names("embedding embedding_bag")
_LAYERS = _EMBEDDINGS | (
    names_of(lambda row: row.amplifies and row.adds_terms and not row.is_total) - canonical_names("cumsum addcmul dot")
)
#: Maximum number of places, and of comparisons of one place and of all in a step.
MAX_LINES, MAX_COMPARED_OF_LINE, MAX_COMPARED = 500, 16, 64
#: Maximum number of nodes that are compared in a step, and of elements of a tensor.
MAX_NODES, MAX_ELEMENTS = 40_000, 1 << 24
#: Maximum number of leaves whose versions are compared, and of functions that are followed to the line of a side.
MAX_LEAVES, MAX_FRAMES = 8, 3
#: Maximum number of nodes that are searched for leaves of one side.
MAX_SEARCHED = 2000

_Versions = tuple[tuple[int, int], ...]
#: A node, and which of its results.
_Edge = tuple[Any, int]


@dataclass
class _Line:
    """A place that compares.

    :ivar running: the user's places that ran, the innermost first; ``sides``: the places that made the two sides.
    :ivar recomputed_side: the side that was made again, as far as the order and the operation tell; or, if it
        ``is_joined``, the one that was made piece by piece.
    :ivar versions: of some leaves, in the last step that counted.
    """

    op_name: str
    running: tuple[CodeLocation, ...] = ()
    sides: tuple[CodeLocation | None, CodeLocation | None] = (None, None)
    recomputed_side: int = 1
    is_joined: bool = False
    first: int = 0
    last: int = -1
    steps: int = 0
    versions: _Versions = ()
    is_ruled_out: bool = False


class _EqualGraphs(NamedTuple):
    """Two equal graphs: versions of some leaves, and whether each has layers of its own, and depends on data."""

    versions: _Versions
    has_own_layers: bool
    depends_on_data: bool


class _Candidate(NamedTuple):
    """A comparison of the running step whose sides are equal, to be counted if a backward call reaches it."""

    spot: CodeLocation
    versions: _Versions
    #: The sequence number of the difference.
    seq: int


class CancellingDifferencesTracker(Tracker):
    """Tracker of differences of equal values: Note [Cancelling differences]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without lines."""
        self._context, self._frames = context, context.frames
        self._lines: dict[CodeLocation, _Line] = {}
        # Of the running step: comparisons that wait for a backward call, and differences on the way to exponentials.
        self._candidates: list[_Candidate] = []
        self._differences: FollowedTensors[_Candidate] = FollowedTensors()
        self._comparison_counts: Counter[CodeLocation] = Counter()
        self._nodes_left = MAX_NODES

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the comparisons of the last step."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget the comparisons of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget all that belongs to the running step only."""
        self._candidates = []
        self._differences.clear()
        self._comparison_counts.clear()
        self._nodes_left = MAX_NODES

    def op_inspected(self, op: Op) -> None:
        """Compare the two sides of an op that compares, and follow differences on their way to an exponential."""
        out = op.out
        if type(out) is not _Tensor or not out.requires_grad or op.optimizing or private.in_transform():
            return
        name = canonical(op_name(op.func))
        if self._differences and (name == _EXP or name in _TO_EXPONENTIAL):
            for candidate in self._differences.of(op.tensors()):
                if name == _EXP:
                    self._candidates.append(candidate)
                else:
                    self._differences.put(out, candidate)
        if name in _COMPARISONS:
            sides = op.tensors()[:2]
            if len(sides) == 2 and all(map(_is_comparable, sides)) and sides[0].shape == sides[1].shape:
                self._compare(op, name, sides)

    def _compare(self, op: Op, name: str, sides: list[torch.Tensor]) -> None:
        """Compare the two sides of an op; keep it as a candidate if graphs and values are equal, and else rule its line
        out.

        :param name: the op's canonical name.
        """
        spot = self._frames.spot_of_op(op.frame)
        if spot is None or capturing():
            return
        line = self._lines.get(spot)
        if line is not None and line.is_ruled_out:
            return
        if not all(side.requires_grad for side in sides):  # a gradient flows into one side only
            if line is not None:
                line.is_ruled_out = True
            elif len(self._lines) < MAX_LINES:
                self._lines[spot] = _Line(name, is_ruled_out=True)
            return
        if any(side.is_leaf for side in sides):
            return
        self._comparison_counts[spot] += 1
        if self._comparison_counts[spot] > MAX_COMPARED_OF_LINE or self._comparison_counts.total() > MAX_COMPARED:
            return
        starts = [_edge_before_copies(side) for side in sides]
        with private.measuring():
            pair = self._compare_graphs(starts, name == _KL and not _is_log_target(op))
            if pair is None and name in (_DIV, _KL):
                return
            is_equal = _are_equal(name, op, sides)
            if pair is None and name in DIFFERENCES and (is_equal or _are_equal_but_for_rounding(sides)):
                pair = _equal_leaves(sides)
                is_equal = is_equal or pair is not None
            may_cancel = is_equal and pair is not None and pair.depends_on_data and _differs_by_row(sides[0])
        if is_equal and not may_cancel:
            return
        if line is None:
            if len(self._lines) >= MAX_LINES:
                return
            line = self._lines[spot] = self._new_line(name, op.frame, sides)
        if pair is None or not is_equal:
            line.is_ruled_out = True
            return
        candidate = _Candidate(spot, pair.versions, op.out.grad_fn._sequence_nr())
        if pair.has_own_layers:
            self._candidates.append(candidate)
        elif name in DIFFERENCES:
            self._differences.put(op.out, candidate)

    def _new_line(self, name: str, frame: FrameType | None, sides: list[torch.Tensor]) -> _Line:
        """Return the entry of a line that compares, with the places that run it and those that made its two sides."""
        if name == _RSUB:
            sides = sides[::-1]
        running: list[CodeLocation] = []
        frame = self._frames.first(frame)
        while frame is not None and len(running) < MAX_FRAMES:
            running.append((frame.f_code, frame.f_lasti))
            frame = self._frames.first(frame.f_back)
        nodes = [_node_before_joins(side) for side in sides]
        seqs = [node._sequence_nr() for node in nodes]
        one, other = map(self._place_of_node, seqs)
        joined = [node is not side.grad_fn for node, side in zip(nodes, sides, strict=True)]
        # The second argument of a loss is its target. What was joined was kept for later.
        recomputed_side = int(seqs[1] >= seqs[0] or name not in DIFFERENCES | {_DIV})
        if joined[0] is not joined[1]:
            recomputed_side = joined.index(True)
        return _Line(name, tuple(running), (one, other), recomputed_side, joined[0] is not joined[1])

    def _place_of_node(self, seq: int) -> CodeLocation | None:
        """Return the place that made the node with a sequence number; ``None`` if it is not in the log."""
        for end, entry in zip(*self._context.recorder.log.slice(seq, seq), strict=True):
            if end > seq:
                return spot_of(entry)
        return None

    # Graphs

    def _compare_graphs(self, starts: list[_Edge], of_probabilities: bool) -> _EqualGraphs | None:
        """Compare two graphs node by node; return ``None`` if they differ, or are too large.

        :param of_probabilities: the first graph is that of a logarithm of what the second one is of.
        """
        one, other = starts
        if of_probabilities:
            one, other, are_same = _edges_below_logarithms(one, other)
            if not are_same:
                return None
        matched: dict[torch.autograd.graph.Node, torch.autograd.graph.Node] = {}
        shared: list[torch.autograd.graph.Node] = []
        versions: dict[int, int] = {}
        has_own_layers = depends_on_data = False
        stack = [(one, other)]
        while stack:
            (a, number), (b, other_number) = stack.pop()
            if number != other_number or (a is None) is not (b is None):
                return None
            if a is None or a in matched:
                if a is not None and matched[a] is not b:
                    return None
                continue
            matched[a] = b
            self._nodes_left -= 1
            if self._nodes_left < 0:
                return None
            if a is b:
                shared.append(a)
                continue
            following = a.next_functions, b.next_functions
            if hasattr(a, "variable") or a.name() != b.name() or len(following[0]) != len(following[1]):
                return None
            is_layer, takes_data = _layer_properties(a)
            has_own_layers |= is_layer
            depends_on_data |= takes_data
            stack.extend(zip(*following, strict=True))
        for node in shared:  # grows as we go
            variable = getattr(node, "variable", None)
            if variable is not None and len(versions) < MAX_LEAVES:
                versions[id(variable)] = variable._version
            if depends_on_data and len(versions) == MAX_LEAVES:
                break
            depends_on_data |= _layer_properties(node)[1]
            for child, _ in node.next_functions:
                if child is not None and child not in matched:
                    matched[child] = child
                    self._nodes_left -= 1
                    shared.append(child)
            if self._nodes_left < 0:
                return None
        return _EqualGraphs(tuple(versions.items()), has_own_layers, depends_on_data) if versions else None

    # Backward calls

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Count for each line the steps in which its comparison is part of the graph from which a backward call
        starts.
        """
        if running.inside is not None or not self._candidates:
            return
        reached, left, step = set(running.graph.seqs), [], self._context.steps.index
        for candidate in self._candidates:
            if candidate.seq not in reached:
                left.append(candidate)
                continue
            line = self._lines[candidate.spot]
            if line.last != step and line.versions != candidate.versions:
                line.first = line.first if line.steps else step
                line.last, line.steps, line.versions = step, line.steps + 1, candidate.versions
                if line.steps < thresholds.CANCELLING_MIN_STEPS:
                    self._context.inspect_until(step + 2)  # the next step confirms it
        self._candidates = left

    def records(self) -> Iterator[CancellingDifference]:
        """Yield a record of each line whose sides were equal in enough steps, and that was never ruled out."""
        for spot, line in self._lines.items():
            if line.is_ruled_out or line.steps < thresholds.CANCELLING_MIN_STEPS:
                continue
            running = [at for one in reversed(line.running) if (at := self._frames.site(one)) is not None]
            compared = compared_on(running, line.op_name in DIFFERENCES | {_DIV})
            recomputed_side = line.recomputed_side if compared.reference is None else compared.reference
            made = self._line_of_side(line, recomputed_side, compared)
            counts = line.steps, line.first
            yield CancellingDifference(
                line.op_name, self._frames.site(spot), made, compared.texts, recomputed_side, *counts
            )

    def _line_of_side(self, line: _Line, recomputed_side: int, compared: Compared) -> Site | None:
        """Return the line that made the side `recomputed_side` (0 or 1), or that assigned its variable if a function of
        the script made it.
        """
        makers, assigned = [self._frames.site(one) for one in line.sides], compared.made[recomputed_side]
        maker = makers[recomputed_side] if makers[0] != makers[1] else None  # a line that makes both tells nothing
        if assigned is None or maker is None or line.is_joined:
            return maker or assigned
        return maker if (maker.file, maker.function) == (assigned.file, assigned.function) else assigned


def _is_comparable(side: object) -> bool:
    """Return whether a side of a comparison is a dense float tensor of a size that is compared."""
    return bool(
        isinstance(side, _Tensor)
        and private.is_dense(side)
        and side.is_floating_point()
        and 1 < side.numel() <= MAX_ELEMENTS
    )


def _edge_before_copies(side: torch.Tensor) -> _Edge:
    """Return the node of a tensor, and which result of it the tensor is; copies are left out."""
    node, number = side.grad_fn, side.output_nr
    while canonical(node.name()) == _CLONE and node.next_functions[0][0] is not None:
        node, number = node.next_functions[0]
    return node, number


def _node_before_joins(side: torch.Tensor) -> Any:
    """Return the node that made a tensor, or the first part of it, if it was stacked or concatenated."""
    node: Any = side.grad_fn
    while canonical(node.name()) in JOINS and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return node


def _edges_below_logarithms(one: _Edge, other: _Edge) -> tuple[_Edge, _Edge, bool]:
    """Return the edges at which the graphs of logarithms and of probabilities begin to be equal, and if they may."""
    names = canonical(one[0].name()), canonical(other[0].name())
    if names == ("log_softmax", "softmax"):
        return one[0].next_functions[0], other[0].next_functions[0], True
    if names[1] == _EXP:
        return one, other[0].next_functions[0], True
    if names[0] == _LOG:
        return one[0].next_functions[0], other, True
    return one, other, False


def _layer_properties(node: Any) -> tuple[bool, bool]:
    """Return whether a node is that of a layer with weights, and whether the layer has an input without a graph."""
    name = canonical(node.name())
    if name not in _LAYERS and "rnn" not in name:
        return False, False
    return True, name in _EMBEDDINGS or any(child is None for child, _ in node.next_functions)


def _is_log_target(op: Op) -> bool:
    """Return whether a call of ``kl_div`` takes its target as logarithms."""
    return bool(op.kwargs.get("log_target", False))


def _are_equal(name: str, op: Op, sides: list[torch.Tensor]) -> bool:
    """Return whether the two sides are equal, element by element; of ``kl_div``, nearly equal as probabilities."""
    one, other = (side.detach() for side in sides)
    if name == _KL and not _is_log_target(op):
        return bool(torch.allclose(one.exp(), other, rtol=0, atol=thresholds.CANCELLING_PROBABILITY_TOLERANCE))
    return bool(torch.equal(one, other))


def _are_equal_but_for_rounding(sides: list[torch.Tensor]) -> bool:
    """Return whether two sides differ by no more than two orders of the same operations make them."""
    one, other = (side.detach() for side in sides)
    return bool(torch.allclose(one, other, rtol=thresholds.CANCELLING_TOLERANCE, atol=thresholds.CANCELLING_TOLERANCE))


def _equal_leaves(sides: list[torch.Tensor]) -> _EqualGraphs | None:
    """Return two graphs that depend on the same leaves, as far as their first ones tell; ``None`` if they do not."""
    one, other = (nearest_leaves(side, MAX_LEAVES, MAX_SEARCHED) for side in sides)
    versions = {number: leaf._version for number, ref in one.items() if (leaf := ref()) is not None}
    return _EqualGraphs(tuple(versions.items()), False, True) if versions and one.keys() == other.keys() else None


def _differs_by_row(side: torch.Tensor) -> bool:
    """Return whether the rows of a tensor are not all equal."""
    rows = side.detach().squeeze()
    return not bool((rows == rows[:1]).all())
