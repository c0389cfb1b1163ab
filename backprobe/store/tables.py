"""The tables of a run's file: their content as plain values, each row verified against its checksum.

Any damage raises ``BackprobeError``, on opening or when a step is read: see ``reading``.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..basics.errors import BackprobeError
from ..basics.untrusted import decompress
from .codec import checksum, unsqueeze

#: The columns of each table. The last one is the checksum of the others.
TABLES = {
    "info": "(key text primary key, value text, crc integer) without rowid",
    "records": "(kind text primary key, data blob, crc integer) without rowid",
    **dict.fromkeys(("layouts", "signatures", "trails", "names"), "(id integer primary key, data blob, crc integer)"),
    "steps": "(id integer primary key, head text, names integer, parameters blob, trail integer, crc integer)",
    "brief": "(id integer primary key, count integer, data blob, crc integer)",
    "statistics": "(id integer primary key, names integer, data blob, crc integer)",
    "backwards": "(id integer primary key, step integer, trouble integer, layout integer, signature integer, "
    "head text, apart text, norms blob, seconds blob, crc integer)",
}
#: Limits for one query: rows, bytes in them, and unpacked bytes of the records of the whole run. Steps are counted in
#: millions, and each has a row.
MAX_ROWS, MAX_ROWS_BYTES, MAX_RECORDS_BYTES = 50_000_000, 1 << 30, 256 << 20
_WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_DAMAGE = (*_WRONG, zlib.error, struct.error)
#: Parts of SQLite's errors for a file that may be sound: another process locks it, it may not be opened, or was closed.
_NOT_DAMAGE = ("database is locked", "unable to open database", "readonly database", "closed database")


@contextmanager
def reading(file: Path, damage: str = "is damaged") -> Iterator[None]:
    """Convert errors inside the block to a ``BackprobeError`` that says that the file is damaged, or cannot be read
    now.

    :param damage: the words for damage.
    """
    try:
        yield
    except (sqlite3.Error, *_DAMAGE) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        said = "cannot be read" if any(words in why for words in _NOT_DAMAGE) else damage
        raise BackprobeError(f"{file} {said}: {why}") from error


def bounded(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield `rows` unchanged.

    :raises ValueError: there are too many rows, or they are too large.
    """
    room = MAX_ROWS_BYTES
    for count, row in enumerate(rows):
        room -= sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if count >= MAX_ROWS or room < 0:
            raise ValueError("a table has more rows than can be")
        yield row


@dataclass(frozen=True)
class StoredStep:
    """A row of the table of steps. ``head`` is a plain ``Step`` without its parameters."""

    head: list[Any]
    names: int
    parameters: bytes
    trail: int


@dataclass(frozen=True)
class StoredCall:
    """A row of the table of backward calls. ``head`` is a plain ``BackwardCall`` without its nodes; ``apart`` holds the
    rare fields of a ``Packed``, by name.
    """

    layout: int
    signature: int
    head: list[Any]
    apart: Mapping[str, Any]
    norms: bytes
    seconds: bytes


class Tables:
    """The content of a run's file, row by row; the bytes are decoded elsewhere.

    :ivar fields: the field names of plain records, by kind.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self._info = {key: json.loads(value) for key, value in self._rows("info", "key, value")}
        self.fields: Mapping[str, Sequence[str]] = self._info.pop("fields")

    def _rows(self, table: str, columns: str, more: str = "", values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return rows of a table without their checksums.

        :raises ValueError: a checksum is wrong, or there are too many rows.
        """
        found = []
        for row in bounded(self.db.execute(f"select {columns}, crc from {table} {more}", values)):
            if checksum(table, *row[:-1]) != row[-1]:
                raise ValueError(f"a row of {table} is not what was written")
            found.append(row[:-1])
        return found

    def _row(self, table: str, columns: str, number: int) -> tuple[Any, ...] | None:
        """Return the row of a table with this number; ``None`` if there is none."""
        found = self._rows(table, columns, "where id = ?", (number,))
        return found[0] if found else None

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Make all reads inside the block see one moment, even if another process writes."""
        self.db.execute("begin")
        with self.db:
            yield

    def info(self) -> dict[str, Any]:
        """Return the run's info, without records."""
        return self._info

    def records(self) -> dict[str, list[Any]]:
        """Return the plain records of the whole run, by kind."""
        found, room = {}, MAX_RECORDS_BYTES
        for kind, data in self._rows("records", "kind, data"):
            text = decompress(data, room)
            room -= len(text)
            found[kind] = json.loads(text)
        return found

    def numbers(self) -> list[int]:
        """Return the numbers of all steps that have data, in order, also of one that was not finished."""
        found = [row[0] for row in bounded(self.db.execute("select id from steps"))]
        stretches = self.stretches()
        if len(found) + sum(count for _, count in stretches) > MAX_ROWS:
            raise ValueError("a run has more steps than can be")
        for first, count in stretches:
            found.extend(range(first, first + count))
        found = sorted({*found})
        # A killed run: the backward calls of the unfinished step.
        last = found[-1] if found else -1
        query = "select distinct step from backwards where step > ? order by step"
        return [*found, *(row[0] for row in bounded(self.db.execute(query, (last,))))]

    def step(self, number: int) -> StoredStep | None:
        """Return the row of a step; ``None`` if it has none of its own."""
        row = self._row("steps", "id, head, names, parameters, trail", number)
        return None if row is None else StoredStep(json.loads(row[1]), *row[2:])

    def stretches(self) -> list[tuple[int, int]]:
        """Return the number of the first step of each stretch of brief steps, and how many steps it has; in order."""
        found = list(bounded(self.db.execute("select id, count from brief order by id")))
        if not all(type(value) is int and 0 <= value < 1 << 62 for row in found for value in row):
            raise ValueError("a stretch of steps has no number")
        return [(first, count) for first, count in found]

    def stretch(self, first: int) -> tuple[int, bytes]:
        """Return how many steps the stretch that begins with step `first` has, and its data."""
        row = self._row("brief", "id, count, data", first)
        if row is None:
            raise LookupError(f"brief has no row {first}")
        return row[1], row[2]

    def calls(self, step: int) -> list[StoredCall]:
        """Return the rows of a step's backward calls, in order."""
        columns = "id, step, trouble, layout, signature, head, apart, norms, seconds"
        rows = self._rows("backwards", columns, "where step = ? order by id", (step,))
        return [
            StoredCall(layout, signature, json.loads(head), json.loads(apart), norms, seconds)
            for _, _, _, layout, signature, head, apart, norms, seconds in rows
        ]

    def statistics(self, after: int = -1) -> list[tuple[int, int, bytes]]:
        """Return step, number of the names, and single-precision values of the measured steps after `after`."""
        rows = self._rows("statistics", "id, names, data", "where id > ? order by id", (after,))
        return [tuple(row) for row in rows]  # type: ignore[misc]

    def part(self, table: str, number: int) -> Any:
        """Return a shared value, as plain data: a layout, signature, list of module calls (trail) or of names.

        :raises LookupError: there is none of this number.
        """
        row = self._row(table, "id, data", number)
        if row is None:
            raise LookupError(f"{table} has no row {number}")
        return unsqueeze(row[1])
