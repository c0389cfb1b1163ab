"""Finds straight-through steps that are written the wrong way round.

A straight-through step, ``x + (y - x).detach()``, has the values of ``y``, the result of a step function of ``x``, and
gives its gradient to ``x``. With ``x`` and ``y`` exchanged it has the values of ``x``, and gives its gradient to ``y``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from ...ops import canonical, names_of
from ...records import ReversedStep
from ...source.frames import CodeLocation
from ...torch_internals import private
from ..forward.followed_tensors import RESHAPES, SCALINGS, FollowedTensors
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_ADD, _SUB, _DETACH = map(canonical, ("add", "sub", "detach"))
_STEP_FUNCTIONS = names_of(lambda row: row.zero_derivative and not row.is_fill)
#: Operations that keep the roles of their input.
_KEEPS = RESHAPES | SCALINGS | {_DETACH}
#: Maximum number of lines.
MAX_LINES = 50
#: Roles of tensors: the result of a step function ``y``; ``x - y``; ``y - y``; and ``x + y`` with an ``x`` without a
#: graph.
_ROUNDED, _REST, _NOTHING, _SUM = "rounded", "rest", "nothing", "sum"


class _Role(NamedTuple):
    """The role of a tensor in a straight-through step, and the line of the step function."""

    name: str
    spot: CodeLocation | None


class ReversedStepTracker(Tracker):
    """Tracker of straight-through steps that give their gradient to a step function, in closely inspected steps."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without steps."""
        self._context, self._frames = context, context.frames
        #: Line of a step -> the line of its step function, and the first step of the run.
        self._found: dict[CodeLocation | None, tuple[CodeLocation | None, int]] = {}
        self._roles: FollowedTensors[_Role] = FollowedTensors()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the tensors of the last step."""
        self._roles.clear()

    def observing_pauses(self) -> None:
        """Forget the tensors of the running step."""
        self._roles.clear()

    def op_inspected(self, op: Op) -> None:
        """Follow the ops of a straight-through step, from the step function on.

        If an optimizer runs the forward in a closure, ops under ``no_grad`` count as the optimizer's. They are
        followed, too.
        """
        if type(op.out) is not _Tensor:
            return
        name = canonical(op_name(op.func))
        if name in _STEP_FUNCTIONS:
            if op.out.requires_grad and not private.in_transform():
                self._roles.put(op.out, _Role(_ROUNDED, self._frames.spot_of_op(op.frame)))
        elif self._roles:
            tensors = [t for t in op.args if isinstance(t, _Tensor)]
            if len(tensors) == 2 and name == _SUB:
                self._subtract(op, op.out, *tensors)
            elif len(tensors) == 2 and name == _ADD:
                self._add(op, op.out, *tensors)
            elif name in _KEEPS and tensors and (role := self._roles.get(tensors[0])) is not None:
                self._roles.put(op.out, role)

    def _subtract(self, op: Op, out: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> None:
        """Note what a difference is whose second side is rounded."""
        rounded, role = self._roles.get(other), self._roles.get(one)
        if rounded is None or rounded.name != _ROUNDED:
            return
        if role is None:
            self._roles.put(out, _Role(_REST, rounded.spot))
        elif role.name == _ROUNDED and one.requires_grad:
            self._roles.put(out, _Role(_NOTHING, rounded.spot))
        elif role.name == _SUM and not other.requires_grad:
            self._note(op, rounded.spot)

    def _add(self, op: Op, out: torch.Tensor, *sides: torch.Tensor) -> None:
        """Note a sum that is a straight-through step the wrong way round, or that may become one.

        The side that is rounded, or nothing, has the graph, and the other side has none.
        """
        for one, other in (sides, sides[::-1]):
            role, rest = self._roles.get(one), self._roles.get(other)
            if role is None or not one.requires_grad or other.requires_grad:
                continue
            if role.name == _ROUNDED and rest is None:
                self._roles.put(out, _Role(_SUM, role.spot))
            elif (role.name == _NOTHING and rest is None) or (
                role.name == _ROUNDED and rest is not None and rest.name == _REST
            ):
                self._note(op, role.spot)

    def _note(self, op: Op, rounded: CodeLocation | None) -> None:
        """Note the line of a step that is written the wrong way round."""
        if len(self._found) < MAX_LINES:
            self._found.setdefault(self._frames.spot_of_op(op.frame), (rounded, self._context.steps.index))

    def records(self) -> Iterator[ReversedStep]:
        """Yield a record of each straight-through step that is written the wrong way round."""
        for spot, (rounded, step) in self._found.items():
            site, at = self._frames.site(spot), self._frames.site(rounded)
            if site is not None and at is not None:
                yield ReversedStep(site, at, step)
