"""A sink that forwards to several sinks.

If the run folder can no longer be written, observation goes on without it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...basics.errors import BackprobeError
from ...records import BriefSteps, Measured, Step, Unseen
from ..schedule.brief_steps import pass_brief
from .disk import DiskSink

if TYPE_CHECKING:
    from ..backward.pending_call_record import PendingCallRecord
    from ..session import Session, Sink

#: The name of the coverage entry of a run that was not saved completely.
SAVE_FAILED = "kept run"
WRITE_ERRORS = (OSError, sqlite3.Error, BackprobeError)


class FanoutSink:
    """A sink that forwards records to `sinks`, one after the other."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        #: What could not be saved of the run.
        self.lost: list[Unseen] = []

    def add(self, sink: Sink) -> None:
        """Forward records to `sink`, too."""
        self._sinks.append(sink)

    def backward(self, recorded: PendingCallRecord) -> None:
        """Forward the record of a backward call."""
        for sink in list(self._sinks):
            with self._removing_on_error(sink, recorded.step):
                sink.backward(recorded)

    def step(self, step: Step, session: Session) -> None:
        """Forward the record of a step."""
        for sink in list(self._sinks):
            with self._removing_on_error(sink, step.index):
                sink.step(step, session)

    def brief_steps(self, steps: BriefSteps, session: Session) -> None:
        """Forward fast-path steps, one by one to sinks that take no more at once."""
        for sink in list(self._sinks):
            with self._removing_on_error(sink, steps.first):
                pass_brief(sink, steps, session)

    def measured(self, measured: Measured) -> None:
        """Pass the statistics of a step to each sink that takes statistics."""
        for sink in list(self._sinks):
            take = getattr(sink, "measured", None)
            if take is not None:
                with self._removing_on_error(sink, measured.step):
                    take(measured)

    @contextlib.contextmanager
    def _removing_on_error(self, sink: Sink, step: int) -> Iterator[None]:
        """Remove `sink` if it cannot write in the block and is the run folder; other errors are raised."""
        try:
            yield
        except WRITE_ERRORS as error:
            if not isinstance(sink, DiskSink):
                raise
            self._sinks.remove(sink)
            self._note_lost(f"from step {step} on", error)

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Handle a write error in the block as the loss of the whole saved run."""
        try:
            yield
        except WRITE_ERRORS as error:
            if not self.lost:
                self._note_lost("whole", error)

    def _note_lost(self, what: str, error: Exception) -> None:
        """Note that the part `what` of the run could not be saved."""
        self.lost.append(lost(what, error))


def lost(what: str, error: Exception) -> Unseen:
    """Return the coverage entry of a run that could not be written any more. `what`: the part that is not saved."""
    return Unseen(SAVE_FAILED, 1, f"not kept {what}: {type(error).__name__}: {error}", hides=False)
