"""Detects terms of a loss that compare a parameter with a tensor that shares its memory: they are zero for ever.

Note [Aliased references]: ``p.data``, ``p.detach()`` and the values of ``state_dict()`` are the memory of the
parameter, and follow each update. A difference or a distance is reported if all of this holds:

- One side is a trained parameter or a view of one, and the other one is a tensor without a graph at the same address,
  of the same shape and strides; or both sides are the same parameter.
- The other side was there in an earlier step already, or the difference is squared or its norm taken: then its
  gradient is zero as well. ``p - p.detach()``, with a value of zero and a gradient of one, may be meant.
- The parameters were written to between the steps that count, and the difference is part of the graph of a backward
  call.

A line that once compared anything else is never reported: loops over pairs of models, which share some layers.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

import torch

from ... import thresholds
from ...ops import canonical, canonical_names, names_of
from ...records import ReferenceNotCopied
from ...source.frames import CodeLocation
from ...source.references import keeping_lines
from ...torch_internals import private
from ...torch_internals.async_scalars import capturing
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import DIFFERENCES, JOINS, RESHAPES, SCALINGS, SQUARES, FollowedTensors
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_MUL = canonical("mul")
_DISTANCES = names_of(lambda row: row.is_distance)
_COMPARISONS = DIFFERENCES | _DISTANCES
#: Operations whose derivative is zero if all their inputs are, and those through which a difference goes to them.
_FLAT_AT_ZERO = SQUARES | canonical_names("norm")
_TO_SQUARES = RESHAPES | JOINS | SCALINGS
#: Maximum number of places, of comparisons in a step, of functions around a place, and of parameters that are named.
MAX_LINES, MAX_COMPARED, MAX_FRAMES, MAX_NAMED = 500, 256, 3, 64
#: Maximum number of references of earlier steps that are kept in mind.
MAX_REFERENCES = 2000


@dataclass
class _Line:
    """A place that compares.

    :ivar running: the user's places that ran, the innermost first.
    :ivar leaves: the parameters that it compares with their own memory, by id.
    :ivar versions: of the parameters, in the last step that counted, by id.
    """

    op: str
    running: tuple[CodeLocation, ...] = ()
    leaves: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    first: int = 0
    last: int = -1
    steps: int = 0
    is_ruled_out: bool = False


class _Candidate(NamedTuple):
    """A comparison of the running step, to be counted if a backward call reaches it.

    :ivar seq: the sequence number of its node; ``version``: of the parameter `leaf`.
    """

    spot: CodeLocation
    seq: int
    leaf: int
    version: int


class AliasedReferencesTracker(Tracker):
    """Tracker of parameters that a loss compares with their own memory: Note [Aliased references]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without lines."""
        self._context, self._frames = context, context.frames
        self._lines: dict[CodeLocation, _Line] = {}
        #: References -> the first step in which they were compared.
        self._references: FollowedTensors[int] = FollowedTensors()
        # Of the running step: comparisons that wait for a backward call, and differences on the way to a square.
        self._candidates: list[_Candidate] = []
        self._differences: FollowedTensors[_Candidate] = FollowedTensors()
        self._compared_count = 0

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the comparisons of the last step, and the references that are gone."""
        if self._compared_count:
            self._references.keep_living(MAX_REFERENCES)
        self.observing_pauses()

    def observing_pauses(self) -> None:
        """Forget the comparisons of the running step."""
        self._candidates = []
        self._differences.clear()
        self._compared_count = 0

    def op_inspected(self, op: Op) -> None:
        """Check the two sides of an op that compares, and follow differences to a square."""
        if type(op.out) is not _Tensor or not op.out.requires_grad or op.optimizing or private.in_transform():
            return
        name = canonical(op_name(op.func))
        if name in _COMPARISONS:
            sides = op.tensors()[:2]
            if len(sides) == 2 and all(map(private.is_dense, sides)):
                self._compare(op, name, sides)
        elif self._differences and (name in _FLAT_AT_ZERO or name in _TO_SQUARES):
            self._follow(op, name)

    def _follow(self, op: Op, name: str) -> None:
        """Follow a difference through an op, whose canonical name is `name`; count it if the op squares it."""
        tensors = op.tensors()
        squares = name in _FLAT_AT_ZERO or (name == _MUL and len(tensors) == 2 and tensors[0] is tensors[1])
        for candidate in self._differences.of(tensors):
            if squares:
                self._candidates.append(candidate)
            else:
                self._differences.put(op.out, candidate)

    def _compare(self, op: Op, name: str, sides: list[torch.Tensor]) -> None:
        """Note a comparison of a parameter with its own memory, and rule out lines that compare anything else.

        :param name: the op's canonical name.
        """
        spot = self._frames.spot_of_op(op.frame)
        if spot is None or capturing() or self._compared_count >= MAX_COMPARED:
            return
        line = self._lines.get(spot)
        if line is not None and line.is_ruled_out:
            return
        self._compared_count += 1
        leaf = _compared_leaf(sides)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                return
            line = self._lines[spot] = _Line(name, self._running(op.frame))
        if leaf is None:
            line.is_ruled_out = True
            return
        if len(line.leaves) < MAX_NAMED:
            line.leaves.setdefault(id(leaf), private.tensor_ref(leaf))
        candidate = _Candidate(spot, op.out.grad_fn._sequence_nr(), id(leaf), leaf._version)
        if name in _DISTANCES or self._is_kept(sides):
            self._candidates.append(candidate)
        else:
            self._differences.put(op.out, candidate)

    def _is_kept(self, sides: list[torch.Tensor]) -> bool:
        """Return whether the side without a graph is a tensor of an earlier step; note it if it is new."""
        step = self._context.steps.index
        reference = next((side for side in sides if not side.requires_grad), None)
        if reference is None:
            return False
        first = self._references.get(reference)
        if first is None:
            self._references.put(reference, step)
        return first is not None and first < step

    def _running(self, frame: FrameType | None) -> tuple[CodeLocation, ...]:
        """Return the places in the user's code that run, the innermost first."""
        running: list[CodeLocation] = []
        frame = self._frames.first(frame)
        while frame is not None and len(running) < MAX_FRAMES:
            running.append((frame.f_code, frame.f_lasti))
            frame = self._frames.first(frame.f_back)
        return tuple(running)

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Count the step for each line whose comparison is part of the graph from which a backward call starts."""
        if running.inside is not None or not self._candidates:
            return
        reached, step = set(running.graph.seqs), self._context.steps.index
        for one in self._candidates:
            line = self._lines[one.spot]
            if one.seq not in reached or line.last == step or line.versions.get(one.leaf) == one.version:
                continue
            line.first = line.first if line.steps else step
            line.last, line.steps = step, line.steps + 1
            if line.steps < thresholds.ALIASED_REFERENCE_MIN_STEPS:
                self._context.inspect_until(step + 2)  # the next step confirms it
        for one in self._candidates:
            if one.seq in reached:
                self._lines[one.spot].versions[one.leaf] = one.version
        self._candidates = [one for one in self._candidates if one.seq not in reached]

    def records(self) -> Iterator[ReferenceNotCopied]:
        """Yield a record of each line that compared parameters with their own memory in enough steps, and never
        anything else.
        """
        for spot, line in self._lines.items():
            if line.is_ruled_out or line.steps < thresholds.ALIASED_REFERENCE_MIN_STEPS:
                continue
            running = [at for one in line.running if (at := self._frames.site(one)) is not None]
            names = self._context.names.leaves.names_of(line.leaves.values(), parameters_only=True)
            kept = tuple(keeping_lines(self._frames.users_files(), running))
            yield ReferenceNotCopied(line.op, line.first, line.steps, tuple(names), self._frames.site(spot), kept)


def _compared_leaf(sides: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the trained parameter of which both sides are the memory; ``None`` if there is none."""
    one, other = sides
    if one.shape != other.shape or one.stride() != other.stride() or one.dtype != other.dtype or not one.numel():
        return None
    leaves = [leaf for side in sides if (leaf := _leaf_of(side)) is not None]
    if not leaves or not all(private.is_readable(side) for side in sides):
        return None
    is_same = leaves[0] is leaves[-1] and (len(leaves) == 2 or not all(side.requires_grad for side in sides))
    return leaves[0] if is_same and one.data_ptr() == other.data_ptr() else None


def _leaf_of(side: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor that requires a gradient if it is a leaf, or the leaf of which it is a view."""
    if not side.requires_grad:
        return None
    base = side if side.is_leaf else side._base
    return base if base is not None and base.is_leaf and base.requires_grad else None
