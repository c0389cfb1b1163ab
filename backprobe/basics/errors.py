"""The errors that backprobe itself raises."""

from .text import without_controls


class BackprobeError(Exception):
    """An error that the user can correct: wrong use, a damaged run, a missing file.

    The command line prints its text as one line and exits with a non-zero code; it never shows a traceback. The text
    holds no control characters of the names in it: Note [Control characters].
    """

    def __str__(self) -> str:
        return without_controls(super().__str__(), lines=True)


class StorageError(BackprobeError):
    """A run cannot be written although its folder is valid: the disk is full, or the file system has no locks.

    The script continues all the same.
    """


class UnknownName(BackprobeError, KeyError):
    """A name that does not exist, such as that of a module. Also a ``KeyError``, as mappings raise."""

    def __str__(self) -> str:
        return without_controls(str(self.args[0]), lines=True)


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an exception, like ``BaseException.add_note``, which Python 3.10 does not have."""
    notes = getattr(error, "__notes__", [])
    error.__notes__ = [*notes, text]  # type: ignore[attr-defined]
