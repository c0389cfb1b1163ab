"""Passes records to the sink, each when all of its numbers are known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from ..records import BriefSteps, Measured, Step
from ..torch_internals import private
from ..torch_internals.async_scalars import Later
from .backward.active_backward import ActiveBackward
from .backward.pending_call_record import PendingCallRecord
from .events import Events
from .schedule.brief_steps import pass_brief
from .schedule.samples import AcceleratorClipNorm, AcceleratorNorms
from .schedule.steps import OnAccelerator
from .statistics.loss_growth import LossHistory
from .statistics.losses import Losses

if TYPE_CHECKING:
    from .session import Session


class Sink(Protocol):
    """The receiver of calls and steps that a session recorded. Its methods are called in the training thread."""

    def backward(self, recorded: PendingCallRecord) -> None: ...
    def step(self, step: Step, session: Session) -> None: ...


class RecordDelivery:
    """Passes records to a sink. A step with numbers that are still on an accelerator waits for them, and so do the
    steps after it: Note [Nothing waits].

    :param session: passed to the sink with each step.
    :param later: fetches numbers from accelerators.
    """

    #: The session ends if this part keeps failing.
    vital = True

    def __init__(self, sink: Sink, session: Session, events: Events, later: Later, losses: Losses | None) -> None:
        """Take the sink that gets the records, and the helpers; there are no records yet."""
        self._sink, self._session, self._events, self._later, self._losses = sink, session, events, later, losses
        self.loss_history = LossHistory()
        self._undelivered: deque[Step] = deque()
        #: Step -> how many numbers of it are not known yet.
        self._missing_numbers: dict[int, int] = {}

    def expect_numbers(
        self, step: Step, losses: list[torch.Tensor], norms: Sequence[AcceleratorNorms | AcceleratorClipNorm] = ()
    ) -> None:
        """Hold `step` back until the parts of its loss and the norms that are on an accelerator are fetched."""
        if losses or norms:
            self._missing_numbers[step.index] = bool(losses) + len(norms)
        if losses:
            with private.disable_function_modes(), torch.no_grad(), private.hide_ops():
                self._later.add(
                    losses[0] if len(losses) == 1 else torch.stack(losses).sum(), self._loss_callback(step.index)
                )
        for one in norms:
            self._later.add_all(one.numbers, self._norms_callback(step.index, one))

    def _loss_callback(self, index: int) -> Callable[[float], None]:
        """Return a function that adds the fetched part of the loss to the held step with this index."""

        def receive(loss: float) -> None:
            """Add the loss to the step, and emit an event if it is not finite."""
            if loss - loss != 0.0:
                self._events.nonfinite_loss_fetched.emit()
            self._fill_in(index, lambda step: replace(step, loss=loss + (step.loss or 0.0)))

        return receive

    def _norms_callback(
        self, index: int, away: AcceleratorNorms | AcceleratorClipNorm
    ) -> Callable[[list[float]], None]:
        """Return a function that fills fetched norms into the held step with this index."""
        return lambda read: self._fill_in(index, lambda step: away.fill_in(step, read))

    def _fill_in(self, index: int, change: Callable[[Step], Step]) -> None:
        """Change a held step by a number that has arrived, and pass steps on if it was the last missing one."""
        for at, step in enumerate(self._undelivered):
            if step.index == index:
                self._undelivered[at] = change(step)
        self._missing_numbers[index] -= 1
        if not self._missing_numbers[index]:
            del self._missing_numbers[index]
            self._deliver()

    def _deliver(self) -> None:
        """Pass on the held steps, in order, up to the first that still lacks numbers."""
        while self._undelivered and self._undelivered[0].index not in self._missing_numbers:
            step = self._undelivered.popleft()
            self.loss_history.add_step(step)
            if self._losses is not None:
                self._losses.add(step)
            self._sink.step(step, self._session)

    def backward_recorded(self, running: ActiveBackward, recorded: PendingCallRecord) -> None:
        """Fetch the numbers that are pending on accelerators, and pass on the record of a backward call."""
        self._later.flush()
        self._sink.backward(recorded)

    backward_repeated = backward_recorded

    def measured(self, measured: Measured) -> None:
        """Pass on the statistics of a step, with the losses since the last ones, to a sink that takes them."""
        take = getattr(self._sink, "measured", None)  # sinks of plugins may have none
        if take is not None:
            take(measured if self._losses is None else self._losses.with_losses(measured))

    def step_ended(self, step: Step) -> None:
        """Hold a step that is over, and pass it on as soon as all of its numbers are known."""
        self._undelivered.append(step)
        self._deliver()

    def brief_steps(self, steps: BriefSteps, away: Mapping[int, OnAccelerator]) -> None:
        """Pass on fast-path steps, which are earlier than the running step (Note [Brief steps]).

        :param away: by step, what of it is on an accelerator.
        """
        try:
            if away or self._undelivered:
                for step in steps:
                    self.expect_numbers(step, *away.get(step.index, ([], [])))
                    self.step_ended(step)
                return
            self.loss_history.add_brief(steps)
            if self._losses is not None:
                for step in steps:
                    self._losses.add(step)
            pass_brief(self._sink, steps, self._session)
        except Exception as error:
            self._events.fault(self, error)
