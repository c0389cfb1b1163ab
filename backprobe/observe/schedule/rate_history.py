"""The learning rate of an optimizer over the steps, in few entries."""

from __future__ import annotations

from typing import Any

from ...records import RaisedRate, Site

#: The rate is noted again once it has changed by this share, and at most so often; then every second entry is dropped.
NOTED_CHANGE, MAX_ENTRIES = 0.05, 512


class RateHistory:
    """The rates that an optimizer had, as steps and the rate from each of them on."""

    def __init__(self) -> None:
        """Start without rates."""
        self.base = 0.0
        self._entries: list[tuple[int, float]] = []
        self._last = (0, 0.0)

    def begin(self, optimizer: Any, rate: float) -> None:
        """Note the highest rate that an optimizer was made with, that its schedule scales, or that it has now."""
        given = [optimizer.defaults.get("lr"), *(group.get("initial_lr") for group in optimizer.param_groups)]
        self.base = max([float(one) for one in given if isinstance(one, (int, float))] + [rate])

    def note(self, step: int, rate: float) -> None:
        """Note the rate of a step if it has changed."""
        entries = self._entries
        if entries and abs(rate - entries[-1][1]) <= NOTED_CHANGE * entries[-1][1]:
            self._last = step, rate
            return
        if len(entries) >= MAX_ENTRIES:
            del entries[1::2]
        if entries and self._last[0] > entries[-1][0]:
            entries.append(self._last)
        entries.append((step, rate))
        self._last = step, rate

    def record(self, optimizer: str, assigned: Site | None, made: Site | None) -> RaisedRate | None:
        """Return the record of a rate that rose above the one that the optimizer began with; ``None`` if it did not.

        :param optimizer: its class. `assigned`: a line that assigns a rate; `made`: the line that makes the optimizer.
        """
        highest = max((rate for _, rate in self._entries), default=0.0)
        if not self.base or highest <= (1 + NOTED_CHANGE) * self.base:
            return None
        return RaisedRate(optimizer, self.base, tuple(dict.fromkeys((*self._entries, self._last))), assigned, made)
