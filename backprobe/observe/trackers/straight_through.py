"""Finds losses that compare the result of a straight-through step with the input of the step.

A straight-through step, ``q = x + (y - x).detach()``, has the values of ``y`` and gives its gradient to ``x``. A loss
of ``q`` and ``x.detach()`` has the value of one that pulls ``y`` towards ``x``, but ``y`` gets no gradient from it.
Without the ``detach`` all of the gradient goes through ``y``, which has none to give if it is rounded.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ...ops import canonical, names_of
from ...records import StraightThroughLoss, UndetachedStep
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.storage_ids import storage_of
from ..forward.followed_tensors import RESHAPES, FollowedTensors
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_SUB, _ADD, _DETACH = map(canonical, ("sub", "add", "detach"))
_COMPARISONS = names_of(lambda row: row.is_distance) | {_SUB}
#: Maximum number of lines.
MAX_LINES = 50


class _Step(NamedTuple):
    """A straight-through step: its line, and the storage of the values that get the gradient."""

    spot: CodeLocation | None
    storage: tuple[int, int] | None


class StraightThroughTracker(Tracker):
    """Tracker of losses of straight-through steps, in closely inspected steps."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without steps."""
        self._context, self._frames = context, context.frames
        #: By the line of the loss: the line of the step, and the first step of the run.
        self._found: dict[CodeLocation | None, tuple[CodeLocation | None, int]] = {}
        #: Line of a step whose difference has its graph: the first step of the run.
        self._undetached: dict[CodeLocation | None, int] = {}
        # Of the running step: differences y - x and their detached values, with x; results of straight-through steps.
        self._differences: FollowedTensors[weakref.ref[Any]] = FollowedTensors()
        self._detached: FollowedTensors[weakref.ref[Any]] = FollowedTensors()
        self._results: FollowedTensors[_Step] = FollowedTensors()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the tensors of the last step."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget the tensors of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget all followed tensors."""
        for followed in (self._differences, self._detached, self._results):
            followed.clear()

    def op_inspected(self, op: Op) -> None:
        """Follow the ops of a straight-through step, and check what its result is compared with."""
        if type(op.out) is not _Tensor or op.optimizing or private.in_transform():
            return
        name, tensors = canonical(op_name(op.func)), [t for t in op.args if isinstance(t, _Tensor)]
        if name == _DETACH and tensors:
            origin = self._differences.get(tensors[0])
            if origin is not None:
                self._detached.put(op.out, origin)
        elif name == _ADD and self._differences and len(tensors) == 2:
            for origin, difference in (tensors, tensors[::-1]):
                undetached = self._differences.get(difference)
                if undetached is not None and undetached() is origin and len(self._undetached) < MAX_LINES:
                    self._undetached.setdefault(self._frames.spot_of_op(op.frame), self._context.steps.index)
                known = self._detached.get(difference)
                if known is not None and known() is origin:
                    step = _Step(self._frames.spot_of_op(op.frame), storage_of(origin))
                    self._results.put(op.out, step)
        elif name in RESHAPES and self._results and tensors:
            step_of = self._results.get(tensors[0])
            if step_of is not None:
                self._results.put(op.out, step_of)
        elif name in _COMPARISONS and len(tensors) == 2:
            if self._results:
                self._check(op, tensors)
            if name == _SUB and all(t.requires_grad for t in tensors):
                self._differences.put(op.out, private.tensor_ref(tensors[1]))

    def _check(self, op: Op, tensors: list[torch.Tensor]) -> None:
        """Note a comparison of a result with the values, without their graph, that got its gradient."""
        for one, other in (tensors, tensors[::-1]):
            step = self._results.get(one)
            if step is None or other.requires_grad or step.storage is None or storage_of(other) != step.storage:
                continue
            spot = self._frames.spot_of_op(op.frame)
            if len(self._found) < MAX_LINES:
                self._found.setdefault(spot, (step.spot, self._context.steps.index))

    def records(self) -> Iterator[StraightThroughLoss | UndetachedStep]:
        """Yield a record of each loss that compares a straight-through result with the step's input, and of each step
        that lacks its ``detach``.
        """
        for spot, step in self._undetached.items():
            if (site := self._frames.site(spot)) is not None:
                yield UndetachedStep(site, step)
        for spot, (made, step) in self._found.items():
            yield StraightThroughLoss(self._frames.site(spot), self._frames.site(made), step)
