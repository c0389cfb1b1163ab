"""Counts internal errors, which the script never sees, for the report."""

from __future__ import annotations

from ..records import Unseen
from ..source.tracebacks import of_handler


class Faults:
    """Internal errors, by part."""

    def __init__(self) -> None:
        #: The first internal error.
        self.first: BaseException | None = None
        self._counts: dict[str, tuple[int, str]] = {}
        #: Parts that were removed as listeners.
        self.ended: set[str] = set()

    def add(self, part: str, error: BaseException) -> int:
        """Count an error of `part`. Returns how many errors that part has had.

        Note [Handlers of signals]: Python runs signal handlers at any point, and so also inside our code. An exception
        that a handler raises, such as a time limit, belongs to the script and is raised again.

        :raises Exception: `error`, if a signal handler raised it.
        """
        if of_handler(error):
            raise error
        if self.first is None:
            self.first = error
        count, text = self._counts.get(part, (0, f"{type(error).__name__}: {error}"[:300]))
        self._counts[part] = (count + 1, text)
        return count + 1

    def unseen(self) -> list[Unseen]:
        """Return the internal errors of each part, with their number and text."""
        return [
            Unseen(
                "internal error",
                count,
                f"in {part}, {'which was left out then' if part in self.ended else 'whose work it cost there'}; the "
                f"script went on: {text}",
            )
            for part, (count, text) in self._counts.items()
        ]
