"""Opens the file of a run for reading; see Note [Reading what a stranger has made].

Note [Opening a run changes nothing]: the file is opened read-only. If no process has its write-ahead log open, the
file is declared immutable to SQLite, which then creates no file beside it, and needs none in a read-only folder.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..basics.untrusted import is_regular

#: SQLite instructions that a query may take: a query over a million steps takes some ten millions.
MAX_QUERY_WORK = 2_000_000_000
#: Instructions between two checks of their count.
_LOOK_EVERY = 1_000_000
#: The most bytes of one stored value, compressed.
_MAX_STORED_BYTES = 256 << 20
#: Suffixes of the files that SQLite creates beside a database.
_BESIDE = ("-wal", "-shm", "-journal")


class RunConnection(sqlite3.Connection):
    """A connection whose queries are bounded.

    :raises sqlite3.OperationalError: from any read: a query took more than ``MAX_QUERY_WORK``.
    """

    _looks = 0

    def execute(self, query: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a query, with a new allowance of work."""
        self._looks = 0
        return super().execute(query, parameters)

    def _too_much(self) -> bool:
        """Count the work of the running query; return whether it is too much, which makes SQLite stop it."""
        self._looks += 1
        return self._looks > MAX_QUERY_WORK // _LOOK_EVERY


def connect(file: Path, unchanging: bool = False) -> RunConnection:
    """Return a read-only connection to the file of a run; its queries are bounded (see ``RunConnection``).

    :param unchanging: no process writes to the file: SQLite takes no locks and creates no files. This is also assumed
        if SQLite has no file beside it.
    :raises ValueError: a file beside it is no regular file.
    :raises sqlite3.Error: it cannot be opened.
    """
    beside = [file.with_name(file.name + end) for end in _BESIDE]
    for one in beside:
        # A folder in place of the shared file does no harm: SQLite cannot open it.
        harmless = one.name.endswith("-shm") and one.is_dir()
        if one.exists() and not harmless and not is_regular(one):
            raise ValueError(f"{one.name} is not a regular file")
    still = unchanging or not any(one.exists() for one in beside)
    uri = f"file:{quote(str(file.absolute()))}?mode=ro{'&immutable=1' if still else ''}"
    db = sqlite3.connect(uri, uri=True, factory=RunConnection)
    try:
        for setting in ("trusted_schema = off", "cell_size_check = on", "query_only = on", "mmap_size = 0"):
            db.execute(f"pragma {setting}")
        if sys.version_info >= (3, 11):
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_STORED_BYTES)
        db.set_progress_handler(db._too_much, _LOOK_EVERY)
    except BaseException:
        db.close()
        raise
    return db


def check_tables(db: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Check that the tables of these names are plain tables; missing ones are ignored.

    Reading a view, a virtual table or a generated column would run code that the file defines.

    :raises ValueError: one is not.
    """
    for table in tables:
        rows = db.execute("select type, rootpage from sqlite_master where name = ?", (table,)).fetchmany(2)
        if rows and (len(rows) > 1 or rows[0][0] != "table" or not rows[0][1]):
            raise ValueError(f"{table} is not a plain table")
        if any(column[6] for column in db.execute(f"pragma table_xinfo({table})").fetchmany(100)):
            raise ValueError(f"{table} is not a plain table")
