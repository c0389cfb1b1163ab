"""Finds residuals of differential equations in which a derivative has no graph.

Note [Constant derivatives]: ``u_t - f(u)`` is to become small for a network ``u`` of ``t``. If ``autograd.grad`` gave
``u_t`` without ``create_graph=True``, it is a constant for the parameters, and only ``f(u)`` trains them. A line is
reported if all of this holds:

- A call of ``autograd.grad`` without ``create_graph`` differentiates a result by a leaf that is no parameter, as the
  points at which an equation is to hold.
- The derivative, or what a few operations on single elements make of it, is added to a tensor with a graph of more than
  one element, subtracted from it, or compared with it by a loss. Both depend on the same parameters.
- The result is part of the graph of a backward call's root, and the next optimizer to step trains such a parameter.

A step along a gradient, as in Langevin sampling and adversarial training, adds it to the leaf itself, which depends on
no parameter. First-order meta-learning differentiates by parameters.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

import torch
from torch import nn

from ...ops import canonical, names_of
from ...records import LostTerm
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.entry_points import as_list
from ...torch_internals.optimizers import ids_held_by
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import ADDITIONS, DIFFERENCES, RESHAPES, FollowedTensors, nearest_leaves
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..tracker import Tracker
from ..tracker_context import TrackerContext
from .lost_terms import AUTOGRAD_GRAD, MAX_LINES, MAX_NODES, MAX_PARAMETERS

_ELEMENTWISE = names_of(lambda row: row.is_elementwise)
#: Operations that make a residual.
_SUMS = ADDITIONS | DIFFERENCES | names_of(lambda row: row.is_distance)


@dataclass(frozen=True)
class _Derivative:
    """A derivative without a graph.

    :ivar spot: the call that computed it.
    :ivar leaves: some leaves of the differentiated function by id, without the inputs that it is differentiated by.
    """

    spot: CodeLocation | None
    leaves: dict[int, weakref.ref[torch.Tensor]]


@dataclass
class _Residual:
    """A sum of a derivative without a graph and of a tensor with one, by the same parameters.

    :ivar reached: it was part of a backward call since the last optimizer step; ``trained``: that optimizer trains one
        of the leaves.
    """

    derivative: _Derivative
    spot: CodeLocation | None
    step: int
    leaves: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)
    reached: bool = False
    trained: bool = False


class ConstantDerivativesTracker(Tracker):
    """Tracker of derivatives without a graph in the terms of a loss: Note [Constant derivatives]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without derivatives."""
        self._context, self._frames = context, context.frames
        #: By the lines of the derivative and of the sum.
        self._found: dict[tuple[CodeLocation | None, CodeLocation | None], _Residual] = {}
        # Of the running step: derivatives without a graph, and what was computed with the residuals.
        self._derivatives: FollowedTensors[_Derivative] = FollowedTensors()
        self._residuals: FollowedTensors[_Residual] = FollowedTensors()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the tensors of the last step."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget the tensors of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget the followed tensors, and which residuals a backward call reached."""
        self._derivatives.clear()
        self._residuals.clear()
        for found in self._found.values():
            found.reached = False

    def backward_returned(self, running: ActiveBackward) -> None:
        """Note the derivatives by leaves that a call of ``autograd.grad`` returned without a graph."""
        if running.kind != AUTOGRAD_GRAD or running.creates_graph or not isinstance(running.result, tuple):
            return
        inputs = as_list(running.arguments.get("inputs"))
        by_data = [isinstance(one, torch.Tensor) and one.is_leaf and type(one) is not nn.Parameter for one in inputs]
        if len(inputs) != len(running.result) or not any(by_data):
            return
        leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        for root in running.roots:
            leaves.update(nearest_leaves(root, MAX_PARAMETERS, MAX_NODES))
        known = _Derivative(running.spot, {by: ref for by, ref in leaves.items() if by not in set(map(id, inputs))})
        for derivative, is_by_data in zip(running.result, by_data, strict=True):
            if is_by_data and known.leaves and type(derivative) is torch.Tensor and private.is_dense(derivative):
                self._derivatives.put(derivative, known)

    def op_inspected(self, op: Op) -> None:
        """Follow derivatives through operations on single elements, and their sums with tensors that have a graph."""
        out = op.out
        if not self._derivatives or type(out) is not torch.Tensor or private.in_transform():
            return
        tensors = op.tensors()
        if self._residuals and out.requires_grad and (reached := self._residuals.of(tensors)):
            self._residuals.put(out, reached[0])
            return
        known = self._derivatives.of(tensors)
        name = canonical(op_name(op.func))
        if not known:
            return
        others = [t for t in tensors if t.requires_grad and t.numel() > 1 and self._derivatives.get(t) is None]
        if others and name in _SUMS and self._depend_on_same(known[0], others[0]):
            self._note_residual(known[0], op)
        elif name in _ELEMENTWISE or name in RESHAPES:
            self._derivatives.put(out, known[0])

    def _depend_on_same(self, derivative: _Derivative, other: torch.Tensor) -> bool:
        """Return whether `other`, to which a derivative is added, depends on a parameter that the differentiated result
        depends on, as far as the nearest leaves of both tell.
        """
        return not derivative.leaves.keys().isdisjoint(nearest_leaves(other, MAX_PARAMETERS, MAX_NODES))

    def _note_residual(self, derivative: _Derivative, op: Op) -> None:
        """Follow the sum of a derivative and of a tensor with a graph."""
        key = derivative.spot, self._frames.spot_of_op(op.frame)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MAX_LINES:
                return
            found = self._found[key] = _Residual(derivative, key[1], self._context.steps.index)
        found.leaves.update(derivative.leaves)
        self._residuals.put(op.out, found)

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Note which residuals are part of the graph of a backward call."""
        if running.inside is None and running.kind != AUTOGRAD_GRAD:
            for found in self._residuals.of(running.roots):
                found.reached = True

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Note which of these residuals depend on parameters of the optimizer that has stepped."""
        reached = [found for found in self._found.values() if found.reached]
        if reached:
            held = ids_held_by(optimizer)
            for found in reached:
                leaves = (ref() for ref in found.leaves.values())
                found.trained |= any(id(leaf) in held for leaf in leaves if leaf is not None)

    def records(self) -> Iterator[LostTerm]:
        """Yield a record of each derivative without a graph in a loss that trains what it depends on."""
        names, site = self._context.names.leaves, self._frames.site
        for found in self._found.values():
            called = site(found.derivative.spot)
            if found.trained and called is not None:
                parameters = tuple(sorted(set(names.names_of(found.leaves.values(), parameters_only=True))))
                yield LostTerm(AUTOGRAD_GRAD, (called,), site(found.spot), parameters, found.step, is_derivative=True)
