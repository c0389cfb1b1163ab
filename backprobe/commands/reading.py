"""Errors of reading a damaged run, reported in one line."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..basics.errors import BackprobeError

#: Exceptions that inconsistent data of a run can cause. Sizes are checked before, so a MemoryError is one of these.
_CONTRADICTIONS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RecursionError, StopIteration, MemoryError, sqlite3.Error),
)


@contextmanager
def reading_run(*runs: Path) -> Iterator[None]:
    """Report in one line that one of `runs` cannot be shown: Note [Reading what a stranger has made].

    :raises BackprobeError: instead of the exception that reading or showing the run raised.
    """
    try:
        yield
    except (BackprobeError, BrokenPipeError):
        raise
    except _CONTRADICTIONS as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        why = " ".join(str(error).split())[:200]
        which, what = " or ".join(map(str, runs)), f"{type(error).__name__}: {why}".removesuffix(": ")
        raise BackprobeError(
            f"{which} is damaged, or backprobe has an error: {what} ({Path(at.filename).name}:{at.lineno})"
        ) from error
