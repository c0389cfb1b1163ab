"""Scans for source lines that ran for the first time while steps are not recorded."""

from __future__ import annotations

import sys
from typing import Any

from ...source.frames import CodeLocation, Frames
from ...source.new_lines import FirstRuns
from ..events import Events
from ..recording_state import RecordingState
from .steps import StepWatch

#: Minimum interval between two scans, as a multiple of the duration of the last scan.
SCAN_INTERVAL_RATIO = 400
#: Up to this step everything is new: new lines start no inspection.
SETTLED_STEP = 30


class NewLineScanner:
    """Finds lines that ran for the first time lately.

    :param inspected_steps: the number of steps at the start, in which it is unknown what had run before.
    """

    def __init__(
        self, frames: Frames, steps: StepWatch, events: Events, state: RecordingState, inspected_steps: int
    ) -> None:
        """Start without lines; a scan is due at once."""
        self._first_runs, self._steps, self._events, self._state = FirstRuns(frames), steps, events, state
        self._inspected_steps = inspected_steps
        #: The step in which new lines were found last, and those lines.
        self._found: tuple[int, list[CodeLocation]] = (-1, [])
        #: The step after which the next scan is due.
        self._next_scan = 0

    def is_due(self, step: int) -> bool:
        """Return whether a scan is due after `step`."""
        return step >= self._next_scan

    def scan(self, step: int, seconds: float, mark: Any) -> bool:
        """Scan after `step`, which took `seconds`. Return whether something certainly ran for the first time.

        :param mark: when the work began that the scan is part of.
        """
        found = self._scan()
        if found:
            self._found = step, found
        spent = self._events.own.since(mark)
        # The first scans follow each other closely: lines that ran while the interpreter began to specialise the code
        # are known only after that.
        self._next_scan = step + 1 + min(int(SCAN_INTERVAL_RATIO * spent / max(seconds, 1e-6)), 8 + 2 * step)
        return bool(found) and step > SETTLED_STEP and self._first_runs.sure

    def latest(self) -> list[CodeLocation]:
        """Return the lines that ran for the first time in this step or the one before; none if the step is recorded.

        In the first steps that is not known: the lines of the running functions count.
        """
        if self._state.forward_recorded:
            return []
        step = self._steps.index
        if self._found[0] < step - 1:
            self._found = step, []
        self._found[1].extend(self._scan(called=True))
        return self._first_runs.entered(self._found[1], sys._getframe(1), step < self._inspected_steps)

    def _scan(self, called: bool = False) -> list[CodeLocation]:
        """Return the lines that ran for the first time since the last scan.

        :param called: include the lines of functions that those lines called.
        """
        try:
            found = self._first_runs.look()
            return self._first_runs.called_from(found) if called and found else found
        except Exception as error:  # may be called in a hook of an optimizer: the script must not see the error
            self._events.fault(self._first_runs, error)
            return []
