"""Backward calls of steps whose nodes are not recorded: what is cheap to know of each, and the whole of one that goes
wrong.

Note [Steps that are not recorded]: no mode of ours is on in them, and no hook on modules. Calls reach us through the
engine's function (Note [In place of the engine's function]). A loss that is not finite is looked at before the call,
while its graph has all that it saved: the call is then recorded as in any other step. Of a call that raises, the graph
is still there afterwards: which nodes have run can be read from it. Lines and modules come from a recorded step that
made the same nodes (``Layouts.assume``). Gradients that are not finite are seen when the call is over, on a few leaves,
the farthest from the loss, where what goes wrong on the way arrives.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ...torchside import places, private
from ...torchside.engine_calls import arguments_of
from ...torchside.entry_points import as_list
from ...torchside.uncompiled import passes_on
from ..events import Events
from .counted import Counted

#: How gradients are.
FINE, GONE, BAD = "fine", "gone", "bad"
#: How often gradients that are gone make the next steps be looked at closely.
ALARMS = 20
#: How often a number of nodes that had not been there does.
SURPRISES = 8


class Unrecorded:
    """Hears the engine's calls.

    :param trouble: called with the number of the step in which something is wrong.
    :param over: called when a call is over.
    """

    def __init__(
        self, counted: Counted, events: Events, trouble: Callable[[int], None], over: Callable[[], None]
    ) -> None:
        self._counted, self._events, self._own, self._trouble, self._over = counted, events, events.own, trouble, over
        self._pid, self._thread = os.getpid(), threading.get_ident()
        self._last, self._alarms, self._surprises, self._turn = FINE, 0, 0, 0
        #: Whether a call is going on.
        self.inside = False

    @passes_on
    def __call__(self, call: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
        if self.inside or os.getpid() != self._pid or threading.get_ident() != self._thread:
            return call(roots, *args, **kwargs)
        frame, begin = sys._getframe(1), None
        mark = self._own.mark()
        try:
            with private.unseen():
                begin = self._begins(roots, args, kwargs, frame)
        except Exception as error:
            self._events.fault(self, error)
        self._own.since(mark)
        self.inside = True
        try:
            make = partial(call, roots, *args, **kwargs)
            result = make() if begin is None else self._counted.calls.watched(begin, make)
        except BaseException as error:
            if begin is None:
                self._safely(self._raised, roots, args, kwargs, frame, error)
            raise
        finally:
            self.inside = False
        if begin is None:
            self._safely(self._ended, roots, args, kwargs, frame)
        return result

    def _safely(self, look: Callable[..., None], *given: Any) -> None:
        mark = self._own.mark()
        try:
            if private.profiled():
                with private.unprofiled(), private.unseen():
                    look(*given)
            else:
                with private.unseen():
                    look(*given)
        except Exception as error:
            self._events.fault(self, error)
        self._own.since(mark)

    def _begins(self, roots: Any, args: Any, kwargs: Any, frame: Any) -> Callable[[], Any] | None:
        """A call is about to be made: what begins its record, where it is to be watched after all."""
        self._events.tell("backward_begins")
        counted = self._counted
        adds, arguments = arguments_of(args, kwargs)
        given, kind = as_list(roots), _kind(adds, frame)
        if counted.is_well(given):
            if not counted.passes(kind, given, frame) and self._surprises < SURPRISES:
                self._surprises += 1
                self._trouble(counted.step)
            return None
        self._trouble(counted.step)
        return partial(counted.calls.begin, kind, given, arguments, frame)

    def _raised(self, roots: Any, args: Any, kwargs: Any, frame: Any, error: BaseException) -> None:
        adds, arguments = arguments_of(args, kwargs)
        self._trouble(self._counted.step)
        self._counted.failed(_kind(adds, frame), as_list(roots), arguments, frame, error)

    def _ended(self, roots: Any, args: Any, kwargs: Any, frame: Any) -> None:
        counted = self._counted
        adds, arguments = arguments_of(args, kwargs)
        state = self._state_now() if adds else self._last
        if state != self._last:
            # Gradients that are no longer there, or zero: the next steps tell why.
            if state is not FINE and self._alarms < ALARMS:
                self._alarms += 1
                self._trouble(counted.step)
                if state is BAD:
                    counted.spoilt(_kind(adds, frame), as_list(roots), arguments, frame)
            self._last = state
        counted.calls.between.over()
        self._over()

    def _state_now(self) -> str:
        """Of the farthest leaf, and of one of the others in turn; of all where that is not as it was."""
        leaves = self._counted.witnesses
        self._turn += 1
        some = [leaves[0], leaves[1 + self._turn % (len(leaves) - 1)]] if len(leaves) > 2 else leaves
        state = _state([leaf.grad for leaf in some])
        return state if state == self._last else _state([leaf.grad for leaf in leaves])


def _kind(adds: bool, frame: Any) -> str:
    """What the user called."""
    if not adds:
        return "autograd.grad"
    below = frame.f_back
    above = below.f_back if below is not None else None
    by_tensor = above is not None and above.f_code is places.TENSOR_BACKWARD
    return "Tensor.backward" if by_tensor else "autograd.backward"


def _state(grads: Sequence[Any]) -> str:
    """How gradients are: one is not finite, all are there and not zero, or some are not."""
    if private.in_mode() or private.profiled():
        with private.unnoticed():
            states = [_state_of(grad) for grad in grads]
    else:
        states = [_state_of(grad) for grad in grads]
    return BAD if BAD in states else GONE if GONE in states else FINE


def _state_of(grad: Any) -> str:
    if grad is None:
        return GONE
    grad = private.local(grad)
    if grad is None:
        return FINE
    if not grad.is_cpu or grad.layout is not torch.strided or not grad.is_floating_point():
        return FINE
    plain = grad.detach()  # with create_graph it has a graph
    total = float(plain.sum())
    if total - total != 0.0:
        return FINE if plain.isfinite().all() else BAD
    return FINE if total or plain.any() else GONE
