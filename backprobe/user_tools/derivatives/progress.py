"""A progress bar with the time left, on standard error, if the work is long and a person is looking."""

from __future__ import annotations

import sys
import time
from typing import Any

from ...basics.terminal import console

#: Minimum expected seconds of work for which a bar is shown.
_MIN_SHOWN_S = 5.0


class Progress:
    """``with Progress(total, "what"):``, then ``advance``. `shown`: None for a terminal only, False for never."""

    def __init__(self, total: int, what: str, shown: bool | None = None) -> None:
        """Take the total amount of work, and its description."""
        self._total, self._what = total, what
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._bar: Any = None
        self._task: Any = None
        self._done = 0
        self._begin = time.perf_counter()

    def __enter__(self) -> Progress:
        """Return this object; the bar appears later."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    @property
    def expected(self) -> float:
        """Seconds that all of the work will take, from what is done."""
        return (time.perf_counter() - self._begin) * self._total / max(1, self._done)

    def advance(self, count: int) -> None:
        """Report that `count` more is done. The bar appears once the work turns out to be long."""
        self._done += count
        if self._bar is None and self._shown and self.expected > _MIN_SHOWN_S:
            self._start()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def _start(self) -> None:
        """Show the progress bar on standard error."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=console(sys.stderr), transient=True)
        self._task = self._bar.add_task(self._what, total=self._total)
        self._bar.start()
