"""Writes to a run that exists only in the script's own process, from a thread of backprobe."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any

from ..records import Measured, Unseen
from .alerts import Alert
from .numbers import Chosen
from .wandb import WandbOpen

#: Maximum number of values that wait. Seconds between two writes if nothing but losses comes.
WAITING, _WRITE_INTERVAL_S = 1 << 20, 1.0


class Outbox:
    """Rows and alerts for the script's W&B run. The training thread only appends to a list."""

    def __init__(self, run: Any, chosen: Chosen) -> None:
        """Start the thread that writes to `run` the curves that `chosen` selects."""
        self.run = run
        self._writer, self._chosen = WandbOpen(run), chosen
        self._pid = os.getpid()
        self._items: deque[tuple[int, Any]] = deque()
        self._put = self._done = 0
        self._wake, self._over = threading.Event(), threading.Event()
        self._closing = False
        #: Measurements and steps that were dropped for lack of space; why writing stopped.
        self.dropped = 0
        self.failed = ""
        #: Whether the script closed its run before everything was written.
        self._late = False
        threading.Thread(target=self._work, name="backprobe-tracker", daemon=True).start()

    def look(self, measured: Measured) -> None:
        """Add the values of a measurement."""
        self._add(len(measured.names), measured)

    def step(self, index: int, numbers: dict[str, float]) -> None:
        """Add the numbers of a step; they wait for the next write."""
        self._add(len(numbers), (index, numbers), wake=False)

    def alert(self, alert: Alert) -> None:
        """Add an alert."""
        self._add(1, alert)

    def last(self) -> None:
        """Note that no more rows follow."""
        if os.getpid() == self._pid:
            self._closing = True
            self._wake.set()

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for everything to be written. Call it after ``last``."""
        if os.getpid() != self._pid or self.failed:
            return
        if not self._over.wait(seconds) and not self.failed:
            self.failed = f"it had not written all of it when {seconds:.0f} s had passed after the end"

    @property
    def unseen(self) -> list[Unseen]:
        """Counts of what is missing in the script's run."""
        said = []
        if self.failed:
            said.append(Unseen("tracker wandb", 1, f"it failed, and was left out: {self.failed}", hides=False))
        if self._late:
            note = "the script had closed its run: what came after that, or was found at the end, is not in it"
            said.append(Unseen("tracker wandb", 1, note, hides=False))
        if self.dropped:
            note = f"{self.dropped:,} looks and steps came faster than it writes, and were left out of it"
            said.append(Unseen("tracker wandb", 1, note, hides=False))
        return said

    @property
    def left_out(self) -> int:
        """The number of curves that the run does not get."""
        return self._chosen.left_out

    def _add(self, size: int, item: object, wake: bool = True) -> None:
        """Append an item of `size` values, and `wake` the writing thread; count the item as dropped if too much
        waits.
        """
        if self.failed or os.getpid() != self._pid:
            return
        if self._put - self._done + size > WAITING:
            self.dropped += 1
            return
        self._put += size
        self._items.append((size, item))
        if wake:
            self._wake.set()

    def _work(self) -> None:
        """Write what waits at intervals, or when woken, until the end. The body of the writing thread."""
        try:
            while not (self._closing and not self._items):
                self._wake.wait(_WRITE_INTERVAL_S)
                self._wake.clear()
                self._write()
        except BaseException as error:  # any error of a tracker is reported
            self.failed = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            self._items.clear()
        finally:
            self._over.set()

    def _write(self) -> None:
        """Write all items that wait now. If the script has closed its run, note that instead of failing."""
        rows: dict[int, dict[str, float]] = {}
        alerts = []
        for _ in range(len(self._items)):
            size, item = self._items.popleft()
            self._done += size
            if isinstance(item, Alert):
                alerts.append(item)
            elif isinstance(item, Measured):
                rows.setdefault(item.step, {}).update(self._chosen.of(item))
            else:
                rows.setdefault(item[0], {}).update(item[1])
        try:
            if rows:
                self._writer.rows([*rows.items()])
            for alert in alerts:
                self._writer.alert(alert)
        except Exception:
            if not self._writer.closed:
                raise
            self._late = True
