"""Finds comparisons of two trained embeddings whose rows become equal.

Note [Collapsed embeddings]: if a loss only draws two embeddings of a batch together and gradient flows into both, the
least loss is one point for all inputs. A line is reported if all of this holds:

- It compares two tensors of one shape, row by row: a cosine similarity, a distance, the square of a difference, or the
  product of two tensors with rows of length 1. Its result reaches the root of a backward call through sums, means and
  factors only: in a contrastive loss, a softmax or a margin is between.
- Both tensors have a graph to a parameter that the next optimizer to step trains, and the script compares neither
  tensor with data in a loss.
- In the first step that was inspected, the rows of one of the tensors differed. In the last one, those of both hardly
  do, and in the one before, they already differed less.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from ... import thresholds
from ...ops import canonical, canonical_names, names_of
from ...records import CollapsedEmbeddings
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.async_scalars import Later, capturing
from ...torch_internals.optimizers import ids_held_by
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import (
    ADDITIONS,
    DIFFERENCES,
    JOINS,
    LOSS_SUMS,
    RESHAPES,
    SQUARES,
    FollowedTensors,
    nearest_leaves,
)
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor, _ref = torch.Tensor, private.tensor_ref
_COSINES = canonical_names("cosine_similarity cosine_embedding_loss")
_DISTANCES = names_of(lambda row: row.is_distance) | canonical_names("pairwise_distance")
#: What puts terms of a loss together.
_JOINING = ADDITIONS | JOINS
_MUL = canonical("mul")
#: Operations that may give rows the length 1, and that return parts of a tensor.
_NORMALISATIONS = canonical_names("normalize div")
_PARTS = names_of(lambda row: row.gives_parts)
#: What makes a distance of a difference, and a similarity of a product.
_FINISHES = {
    "difference": SQUARES | {"norm"},
    "product": canonical_names("sum mean"),
}
#: Operations through which a distance or a similarity goes on its way to the root.
_SUMS = LOSS_SUMS | canonical_names("sqrt pow square")
#: Maximum number of comparisons that are measured in a step; of lines; of rows that are measured.
MAX_MEASURED, MAX_LINES, MAX_ROWS = 64, 50, 512
#: Maximum number of elements of a tensor that is measured.
MAX_ELEMENTS = 1 << 24
#: Maximum number of leaves of one tensor that are found, and of nodes on the way to them.
MAX_LEAVES, MAX_NODES = 8, 200

_Key = tuple[CodeLocation | None, str]


@dataclass
class _Comparison:
    """A comparison in the running step.

    :ivar stage: what is still to be done to its result: a key of ``_FINISHES``, or nothing.
    :ivar numbers: the spread of both tensors, their deviation, and how far their rows are from length 1.
    :ivar leaves: of both tensors, some of the leaves that they depend on, by id; ``sides``: the tensors.
    :ivar beside_others: the loss has a term that is no comparison.
    """

    key: _Key
    stage: str
    directions: bool
    is_product: bool
    rows: int
    numbers: torch.Tensor
    sides: tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]]
    leaves: tuple[dict[int, weakref.ref[torch.Tensor]], dict[int, weakref.ref[torch.Tensor]]]
    trained: list[bool] = field(default_factory=lambda: [False, False])
    reached: bool = False
    beside_others: bool = False


@dataclass
class _Measurement:
    """A line in one step: the larger spread of its tensors, and the larger deviation of their rows from the mean."""

    step: int
    rows: int
    spread: float
    deviation: float
    directions: bool
    beside_others: bool


class CollapsedEmbeddingsTracker(Tracker):
    """Tracker of comparisons of two trained embeddings: Note [Collapsed embeddings]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without lines."""
        self._context, self._frames = context, context.frames
        self._lines: dict[_Key, list[_Measurement]] = {}
        self._later = Later()
        # Of the running step:
        self._comparisons: list[_Comparison] = []
        self._followed: FollowedTensors[frozenset[int]] = FollowedTensors()
        self._fitted_tensors: FollowedTensors[bool] = FollowedTensors()
        self._normalised_tensors: FollowedTensors[bool] = FollowedTensors()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the comparisons of the last step."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget the comparisons of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget all that belongs to the running step only."""
        self._comparisons = []
        self._followed.clear()
        self._fitted_tensors.clear()
        self._normalised_tensors.clear()

    def op_inspected(self, op: Op) -> None:
        """Measure an op that compares two embeddings, and follow its result on the way to the loss."""
        if self._context.recorder.in_builtin_optimizer or private.in_transform():
            return
        out = op.out
        if type(out) is tuple and self._normalised_tensors:
            self._note_parts(op, out)
        if type(out) is not _Tensor or not out.requires_grad or not private.is_dense(out):
            return
        tensors = op.tensors()
        if not tensors or not all(map(private.is_dense, tensors)):
            return
        name = canonical(op_name(op.func))
        stage = _stage_of(name)
        if stage is not None and len(tensors) >= 2:
            one, other = tensors[:2]
            if one.requires_grad != other.requires_grad and stage != "product" and one.shape == other.shape:
                self._fitted_tensors.put(one if one.requires_grad else other, True)
            elif self._is_comparison(stage, one, other) and len(self._comparisons) < MAX_MEASURED and not capturing():
                self._measure_comparison(op, name, stage, one, other)
                return
        if name in _NORMALISATIONS or (name in RESHAPES and self._normalised_tensors.of(tensors)):
            self._normalised_tensors.put(out, True)
        self._follow(name, tensors, out)

    def _note_parts(self, op: Op, parts: tuple[object, ...]) -> None:
        """Note that the parts of a tensor with normalised rows, such as from ``chunk``, are normalised too."""
        if canonical(op_name(op.func)) in _PARTS and self._normalised_tensors.of(op.tensors()):
            for part in parts:
                if type(part) is _Tensor:
                    self._normalised_tensors.put(part, True)

    def _is_comparison(self, stage: str, one: object, other: object) -> bool:
        """Return whether an op at `stage` compares two embeddings; a product only if the rows of both are
        normalised.
        """
        if stage == "product" and not (self._normalised_tensors.get(one) and self._normalised_tensors.get(other)):
            return False
        return _are_embeddings(one, other)

    def _measure_comparison(self, op: Op, name: str, stage: str, one: torch.Tensor, other: torch.Tensor) -> None:
        """Measure the rows of two embeddings that an op compares, and begin to follow its result."""
        dim = op.kwargs.get("dim", op.args[2] if len(op.args) > 2 and type(op.args[2]) is int else 1)
        is_cosine = name in _COSINES
        if is_cosine and name == canonical("cosine_embedding_loss"):
            dim = -1
        if is_cosine and not (
            type(dim) is int and -one.dim() <= dim < one.dim() and one.shape[dim] >= thresholds.EMBEDDING_MIN_WIDTH
        ):
            return
        with private.measuring():
            numbers = torch.stack([_row_statistics(t, dim if is_cosine else None) for t in (one, other)])
        key = self._frames.spot_of_op(op.frame), op_name(op.func)
        leaves = nearest_leaves(one, MAX_LEAVES, MAX_NODES), nearest_leaves(other, MAX_LEAVES, MAX_NODES)
        if all(leaves):
            rows = min(one.numel() // one.shape[dim] if is_cosine else one.shape[0], MAX_ROWS)
            sides = _ref(one), _ref(other)
            is_product = stage == "product"
            look = _Comparison(key, stage, is_cosine or is_product, is_product, rows, numbers, sides, leaves)
            self._comparisons.append(look)
            self._followed.put(op.out, frozenset((len(self._comparisons) - 1,)))

    def _follow(self, name: str, tensors: list[torch.Tensor], out: object) -> None:
        """Follow comparisons through an op to its result `out`, if they go on unchanged but for sums, means and
        factors.
        """
        followed = self._followed.of(tensors)
        origins: frozenset[int] = frozenset().union(*followed)
        kept = {
            i
            for i in origins
            if name in (_FINISHES[self._comparisons[i].stage] if self._comparisons[i].stage else _SUMS)
        }
        if name == _MUL and len(tensors) == 2 and tensors[0] is tensors[1]:
            kept |= {i for i in origins if self._comparisons[i].stage == "difference"}
        for i in kept:
            self._comparisons[i].stage = ""
            if name in _JOINING and len(followed) < sum(t.requires_grad for t in tensors):
                self._comparisons[i].beside_others = True
        if kept:
            self._followed.put(out, frozenset(kept))

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Note which comparisons of tensors the roots of a backward call were computed from."""
        if running.inside is not None:
            return
        for root in running.roots:
            for i in self._followed.get(root) or ():
                look = self._comparisons[i]
                fitted = any(t is not None and self._fitted_tensors.get(t) for t in (ref() for ref in look.sides))
                look.reached |= not look.stage and not fitted

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep the comparisons both of whose tensors depend on parameters that optimizers have stepped."""
        waiting = [one for one in self._comparisons if one.reached and not all(one.trained)]
        if not waiting:
            return
        held = ids_held_by(optimizer)
        found = []
        for one in waiting:
            for side, leaves in enumerate(one.leaves):
                one.trained[side] |= any(id(leaf) in held for ref in leaves.values() if (leaf := ref()) is not None)
            if all(one.trained):
                found.append(one)
        if found and not capturing():
            with private.measuring():
                numbers = self._later.fetch([number for one in found for number in one.numbers.reshape(-1).unbind()])
            for i, one in enumerate(found):
                self._keep_numbers(one, numbers[6 * i : 6 * i + 6])

    def _keep_numbers(self, look: _Comparison, numbers: list[float]) -> None:
        """Keep the measurement of a comparison for its line; if rows became equal, have the next step confirm it.

        :param numbers: for both tensors: spread, deviation, and distance of the rows from length 1.
        """
        if not all(map(math.isfinite, numbers)) or (look.key not in self._lines and len(self._lines) >= MAX_LINES):
            return
        spread, deviation, off_unit = (max(numbers[i], numbers[i + 3]) for i in range(3))
        if look.is_product and off_unit > thresholds.EMBEDDING_UNIT_TOLERANCE:
            return
        seen, step = self._lines.setdefault(look.key, []), self._context.steps.index
        now = _Measurement(step, look.rows, spread, deviation, look.directions, look.beside_others)
        if seen and seen[-1].step == step:  # several calls, such as one for each order of two views
            last = seen.pop()
            now.beside_others |= last.beside_others
            now.spread, now.deviation = max(last.spread, now.spread), max(last.deviation, now.deviation)
        del seen[1:-1]  # the first and the last two are enough
        seen.append(now)
        fell = len(seen) > 1 and now.spread <= thresholds.EMBEDDING_MAX_SPREAD_SHARE * seen[0].spread
        if fell and not _is_collapsed(seen) and seen[-2].step < step - 1:
            self._context.inspect_until(step + 2)  # the next step confirms it

    def records(self) -> Iterator[CollapsedEmbeddings]:
        """Yield a record of each line that compares embeddings whose rows became equal."""
        for (spot, op), seen in self._lines.items():
            if _is_collapsed(seen):
                first, last = seen[0], seen[-1]
                yield CollapsedEmbeddings(
                    op, self._frames.site(spot), last.rows, first.spread, first.step, last.spread, last.step
                )


def _is_collapsed(seen: list[_Measurement]) -> bool:
    """Return whether the rows differ hardly any more in the last measurement, and already less in the one before."""
    if len(seen) < 3:
        return False
    first, before, last = seen[0], seen[-2], seen[-1]
    if not last.directions and last.deviation > thresholds.EMBEDDING_MAX_DEVIATION_SHARE * first.deviation:
        return False
    if last.spread > (
        thresholds.EMBEDDING_EQUAL_SPREAD_BESIDE_OTHERS if last.beside_others else thresholds.EMBEDDING_EQUAL_SPREAD
    ):
        return False
    return (
        last.spread <= thresholds.EMBEDDING_MAX_SPREAD_SHARE * first.spread
        and before.spread <= thresholds.EMBEDDING_MAX_SPREAD_SHARE_BEFORE * first.spread
    )


def _stage_of(name: str) -> str | None:
    """Return the key of ``_FINISHES`` that an op which compares needs next, or nothing (empty) if its result is
    complete.

    ``None`` if the op compares nothing.
    """
    if name in _COSINES or name in _DISTANCES:
        return ""
    if name in DIFFERENCES:
        return "difference"
    return "product" if name == _MUL else None


def _are_embeddings(one: Any, other: Any) -> bool:
    """Return whether two different tensors with a graph have the same shape, with enough rows of enough elements."""
    if one is other or not (one.requires_grad and other.requires_grad) or one.is_leaf or other.is_leaf:
        return False
    if one.shape != other.shape or one.dim() < 2 or not (one.is_floating_point() and other.is_floating_point()):
        return False
    rows, width = one.shape[0], one.numel() // max(1, one.shape[0])
    return bool(
        rows >= thresholds.EMBEDDING_MIN_ROWS
        and width >= thresholds.EMBEDDING_MIN_WIDTH
        and one.numel() <= MAX_ELEMENTS
    )


def _row_statistics(x: torch.Tensor, dim: int | None) -> torch.Tensor:
    """Return the spread of the rows of a tensor, their deviation from their mean, and how far they are from length 1.

    :param dim: the dimension along which rows are normalised first. If there is none, rows may be the first dimension
        or all but the last one: the larger spread counts.
    """
    x = x.detach().float()
    if dim is not None:
        rows = x.movedim(dim, -1).flatten(0, -2)
        views = [torch.nn.functional.normalize(_sampled(rows), dim=-1)]
    else:
        views = [_sampled(x.flatten(1))]
        if x.dim() > 2:
            views.append(_sampled(x.flatten(0, -2)))
    spreads, deviations = [], []
    for rows in views:
        deviation = (rows - rows.mean(0)).square().sum(-1).mean().sqrt()
        deviations.append(deviation)
        spreads.append(deviation / rows.square().sum(-1).mean().sqrt())
    off_unit = (views[-1].square().sum(-1) - 1).abs().max()
    return torch.stack([torch.stack(spreads).max(), torch.stack(deviations).max(), off_unit])


def _sampled(rows: torch.Tensor) -> torch.Tensor:
    """Return at most `MAX_ROWS` rows, at even distances."""
    return rows[:: -(-len(rows) // MAX_ROWS)]
