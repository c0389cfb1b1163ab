"""Writes a run while it happens. Each step that gets a record of its own is committed when it ends.

Brief steps are written together: a killed process loses at most those of the last half second.

Note [What survives a crash]: write-ahead logging without a flush to the disk at each commit: committed data survives
the process, and a power cut costs the last steps but not the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import time
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..basics.errors import BackprobeError, StorageError
from ..basics.files import inside, replacing
from ..graphs.packed_calls import Layout, Packed, PackedNodes, Signature, pack
from ..records import BackwardCall, BriefSteps, Facts, Finding, KeptBatch, Measured, ModuleCall, Step
from . import CODE, CRASH, FILE, FORMAT, PRIVATE, PROCESS_DESCRIPTION
from .batches import file_of, is_batch
from .codec import checksum, dumps, own_fields, squeeze, to_plain
from .columns import brief_data, layout_plain, signature_plain
from .facts import facts_plain
from .tables import TABLES

if TYPE_CHECKING:
    from ..traces import Trace


#: Errors of a file system that has no room or no locks, or is gone.
_STORAGE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ESTALE}
)


class Writer:
    """Writes one run folder while the script runs.

    :param limit: approximate size of the run in bytes. Above it every other step loses its nodes, oldest first; steps
        with errors and the first ones keep them, and the numbers of every step stay.
    :param texts: keep the text of source lines.
    :raises BackprobeError: the folder cannot be created or is not empty.
    """

    def __init__(self, folder: Path, info: Mapping[str, Any], limit: int = 256 << 20, texts: bool = True) -> None:
        self.folder = folder
        self.limit = limit
        self._texts = texts
        self.thinned = 0
        self._stride = 1
        self._thin_at = 0
        self._bytes = 0
        self._layouts: dict[int, tuple[Any, int]] = {}
        self._signatures: dict[int, tuple[Signature, int]] = {}
        self._trails: dict[Any, int] = {}
        self._names: dict[tuple[str, ...], int] = {}
        self._parts: dict[str, int] = {}
        try:
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            allowed = (PROCESS_DESCRIPTION, CODE, CRASH)
            if any(one.name not in allowed and not is_batch(one) for one in folder.iterdir()):
                raise BackprobeError(f"{folder} is not empty: a run needs a folder of its own")
            os.close(os.open(folder / FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self._db = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
            self._db.execute("pragma journal_mode=wal")
            self._db.execute("pragma synchronous=normal")
            self._db.create_function("checksum", -1, checksum)
            self._db.execute("begin")
            for table, columns in TABLES.items():
                self._db.execute(f"create table {table} {columns}")
            self._db.execute("create index backwards_step on backwards (step)")
            self.put({**info, "format": FORMAT, "backprobe": __version__, "fields": own_fields()})
            self._db.execute("commit")
            self._inode = (folder / FILE).stat().st_ino
        except (OSError, sqlite3.Error) as error:
            raise cannot_write(folder, error) from error
        self._db.execute("begin")

    def check_there(self) -> None:
        """Check that the file is still in its folder: SQLite continues to write to a deleted file.

        :raises FileNotFoundError: it is not.
        """
        with contextlib.suppress(OSError):
            if (self.folder / FILE).stat().st_ino == self._inode:
                return
        raise FileNotFoundError(f"{self.folder / FILE} was removed while the script ran")

    def put(self, info: Mapping[str, object]) -> None:
        """Write entries of the run's info, replacing those of the same names."""
        for key, value in info.items():
            self._row("info", key, dumps(value))

    def facts(self, facts: Facts) -> None:
        """Write the facts of the run, replacing earlier ones."""
        rows, fields = facts_plain(facts, self._texts)
        self.put({"asked": facts.asked, "fields": fields})
        self._db.execute("delete from records")
        for kind, found in rows.items():
            self._row("records", kind, squeeze(found))

    def _row(self, table: str, *values: int | str | bytes) -> None:
        """Write a row with its checksum, replacing the one with the same key."""
        marks = "?, " * len(values)
        self._db.execute(f"insert or replace into {table} values ({marks}?)", (*values, checksum(table, *values)))

    def _new(self, table: str, plain: object) -> int:
        """Write a shared value, such as a layout, under the next number of its table, and return that number."""
        data = squeeze(plain)
        self._bytes += len(data)
        number = self._parts[table] = self._parts.get(table, 0) + 1
        self._row(table, number, data)
        return number

    def layout(self, key: object, layout: Layout) -> int:
        """Return the number of `layout`, and write it if it is new.

        :param key: an object that stays the same as long as the layout does.
        """
        known = self._layouts.get(id(key))
        if known is not None and known[0] is key:
            return known[1]
        number = self._new("layouts", layout_plain(layout, self._texts))
        self._layouts[id(key)] = (key, number)
        while len(self._layouts) > 256:
            del self._layouts[next(iter(self._layouts))]
        return number

    def rename(self, layouts: Mapping[int, Layout]) -> None:
        """Rewrite layouts whose module names were not yet known when they were first written."""
        for number, layout in layouts.items():
            self._row("layouts", number, squeeze(layout_plain(layout, self._texts)))

    @property
    def layouts(self) -> Sequence[tuple[Any, int]]:
        """The keys of recently written layouts, and their numbers."""
        return list(self._layouts.values())

    def backward(self, call: BackwardCall, packed: Packed, key: object, trouble: bool) -> None:
        """Write a backward call.

        :param key: as in ``layout``.
        :param trouble: the call has an error or bad values, so that its nodes are kept when the run is thinned.
        """
        known = self._signatures.get(id(packed.signature))
        if known is not None and known[0] is packed.signature:
            signature = known[1]
        else:
            signature = self._new("signatures", signature_plain(packed.signature))
            self._signatures[id(packed.signature)] = (packed.signature, signature)
            while len(self._signatures) > 256:
                del self._signatures[next(iter(self._signatures))]
        head = dumps(to_plain(call, without="nodes", texts=self._texts))
        few = {"unmeasured": sorted(packed.unmeasured), "bad": to_plain(packed.bad, texts=self._texts)}
        apart = dumps({name: value for name, value in few.items() if value})
        norms, seconds = array("d", packed.norms).tobytes(), array("f", packed.seconds).tobytes()
        self._bytes += len(head) + len(apart) + len(norms) + len(seconds) + 64
        shared = (self.layout(key, packed.layout), signature)
        self._row("backwards", call.index, call.step, int(trouble), *shared, head, apart, norms, seconds)

    def step(self, step: Step, trail_key: Any, calls: Any) -> None:
        """Write a finished step and commit; thin the run if it has become too large.

        :param trail_key: equal for steps with the same module calls.
        :param calls: returns these calls; called only if `trail_key` is new.
        """
        trail = self._trails.get(trail_key)
        if trail is None:
            trail = self._trails[trail_key] = self._new("trails", [to_plain(c, texts=self._texts) for c in calls()])
            while len(self._trails) > 64:
                del self._trails[next(iter(self._trails))]
        number = self._names_of(tuple(p.name for p in step.parameters))
        values = array("d", (_or_less(v) for p in step.parameters for v in (p.weight, p.grad, p.update)))
        head = dumps(to_plain(step, without="parameters", texts=self._texts))
        self._bytes += len(head) + 8 * len(values) + 32
        self._row("steps", step.index, head, number, values.tobytes(), trail)
        self.commit()
        if self._bytes > max(self.limit, self._thin_at):
            self._thin(step.index)

    def brief_steps(self, steps: BriefSteps) -> None:
        """Write a stretch of brief steps in one row, and commit."""
        data = brief_data(steps)
        self._bytes += len(data) + 32
        self._row("brief", steps.first, len(steps), data)
        self.commit()

    def _names_of(self, names: tuple[str, ...]) -> int:
        """Return the number of a list of names, and write it if it is new."""
        number = self._names.get(names)
        if number is None:
            number = self._names[names] = self._new("names", names)
        return number

    def measured(self, measured: Measured) -> None:
        """Write the statistics of a step."""
        data = array("f", measured.values).tobytes()
        self._bytes += len(data) + 32
        self._row("statistics", measured.step, self._names_of(measured.names), data)

    def commit(self) -> None:
        """Make all that was written survive the process, and begin the next transaction."""
        self._db.execute("commit")
        self._db.execute("begin")

    def _thin(self, now: int) -> None:
        """Delete the nodes of every other older step, then more data if that does not suffice, and measure the size
        again.
        """
        self._stride = min(2 * self._stride, 1 << 30)
        before = self._db.total_changes
        self._db.execute(
            "delete from backwards where trouble = 0 and step > 3 and step < ? and step % ? != 0",
            (now - 3, self._stride),
        )
        self.thinned += self._db.total_changes - before
        # Delete graphs and signatures that no call uses; keep those that the next call may refer to.
        for table, column, held in (
            ("layouts", "layout", [n for _, n in self._layouts.values()]),
            ("signatures", "signature", [n for _, n in self._signatures.values()]),
        ):
            used = ",".join(map(str, held)) or "0"
            self._db.execute(
                f"delete from {table} where id not in (select {column} from backwards) and id not in ({used})"
            )
        if self._stride > 4:
            older = self._db.execute("select id from statistics where id < ? order by id", (now // 2,)).fetchall()
            self._db.executemany("delete from statistics where id = ?", older[1::2])
        if self._stride > 64:  # from here on, the numbers of the steps take most space
            self._db.execute(
                "update steps set parameters = x'', crc = checksum('steps', id, head, names, x'', trail) "
                "where id > 3 and id < ? and id % ? != 0",
                (now - 3, self._stride // 64),
            )
        self.commit()
        pages, free, size = (
            self._db.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        self._bytes = (pages - free) * size
        self._thin_at = self._bytes + self._bytes // 8  # not again at every step

    def abandon(self) -> None:
        """Close the file as it is: the script did not run."""
        self._db.close()

    def close(self, facts: Facts, findings: Sequence[Finding]) -> None:
        """Write the final facts and the findings, merge the log into the file, and close it."""
        self.facts(facts)
        self._row("records", "Finding", squeeze(to_plain(findings, texts=self._texts)))
        self.put({"ended": time.time(), "thinned": self.thinned})
        self._db.execute("commit")
        self._db.execute("pragma wal_checkpoint(truncate)")
        self._db.close()


def amend(folder: Path, info: Mapping[str, object]) -> None:
    """Replace info entries of the run in `folder`, which is over.

    :raises BackprobeError: it cannot be written.
    """
    try:
        db = sqlite3.connect(folder / FILE)
        try:
            with db:
                for key, value in info.items():
                    row = key, dumps(value)
                    db.execute("insert or replace into info values (?, ?, ?)", (*row, checksum("info", *row)))
            db.execute("pragma wal_checkpoint(truncate)")
        finally:
            db.close()
    except (OSError, sqlite3.Error) as error:
        raise BackprobeError(f"cannot write to the run in {folder}: {error}") from error


def cannot_write(folder: Path, error: Exception) -> BackprobeError:
    """Return the error for a run that cannot be written to `folder`.

    A ``StorageError`` if the file system is the cause, for example because it is full.
    """
    broken = isinstance(error, sqlite3.Error) or getattr(error, "errno", None) in _STORAGE
    return (StorageError if broken else BackprobeError)(f"cannot write a run to {folder}: {error}")


def _or_less(value: float | None) -> float:
    """Return a norm as it is stored: -1 if it is not known."""
    return -1.0 if value is None else value  # a norm is never negative, and may be NaN


def save(trace: Trace, folder: Path, limit: int = 1 << 30) -> Path:
    """Write the whole of `trace`, with saved batches, to `folder`, and return the folder."""
    writer = Writer(folder, {"started": time.time(), **trace.info, "pid": os.getpid()}, limit)
    for measured in trace.statistics:
        writer.measured(measured)
    for traced in trace.steps:
        for call in traced.backwards:
            packed = call.nodes.packed if isinstance(call.nodes, PackedNodes) else pack(call.nodes)
            writer.backward(call, packed, packed.layout, bool(call.bad_nodes or call.raised or call.bad_ops))
        calls: tuple[ModuleCall, ...] = tuple(traced.module_calls)
        writer.step(traced.record, calls, lambda calls=calls: calls)
    writer.put({"sources": trace.sources})
    writer.close(trace.facts, trace.findings)
    before: Path | None = getattr(trace.steps, "folder", None)
    for kept in trace.facts.of(KeptBatch):
        name = file_of(kept.step)  # not the recorded name, which may be anything
        if before is not None and inside(before, name).is_file():
            with replacing(folder / name) as part:
                shutil.copyfile(before / name, part)
    return folder
