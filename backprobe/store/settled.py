"""Reads a run in a read-only folder, or on a file system without locks.

Note [Runs that cannot be locked]: SQLite reads a write-ahead log with the help of a shared file beside it and of locks.
If the folder has no room for that file, or the file system has no locks, no process can be writing there through SQLite
from this machine: the file is read as one that does not change. Steps that are still in the log are merged into a copy.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: Parts of SQLite's errors if it cannot create its shared file or take its locks.
_NO_ROOM = ("unable to open database file", "readonly database", "disk i/o error", "locking protocol")


def needs_room(error: sqlite3.Error) -> bool:
    """Return whether SQLite failed because it lacks locks or room for its shared file."""
    return isinstance(error, sqlite3.OperationalError) and any(words in str(error).lower() for words in _NO_ROOM)


@contextlib.contextmanager
def settled(file: Path) -> Iterator[Path]:
    """Yield `file` if its log is empty, otherwise a copy with the log merged in, which is deleted after the block.

    A connection that was opened inside the block remains usable.

    :raises OSError: there is no room for the copy.
    :raises sqlite3.Error: the log cannot be read.
    """
    log = file.with_name(f"{file.name}-wal")
    if not log.is_file() or not log.stat().st_size:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="backprobe-read-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / file.name
        shutil.copyfile(file, copy)
        shutil.copyfile(log, copy.with_name(log.name))
        db = sqlite3.connect(copy)
        try:
            db.execute("pragma wal_checkpoint(truncate)").fetchall()
        finally:
            db.close()
        yield copy
