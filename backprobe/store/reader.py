"""Reads a run folder as a ``Trace``. Never imports torch."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import typing
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from .. import __version__
from ..basics.errors import BackprobeError
from ..basics.files import inside
from ..basics.privacy import at_home
from ..findings import explain
from ..graphs.packed_calls import Layout, Packed, PackedNodes, Signature
from ..records import BackwardCall, BadValues, Finding, Measured, ModuleCall, NodeRun, ParameterStat, Step
from ..traces import Shown, StepRow, Trace, TracedStep
from . import FILE, FORMAT
from .codec import Decoder, check_name
from .columns import brief_from, layout_from, signature_from
from .facts import facts_from
from .opening import check_tables, connect
from .settled import needs_room, settled
from .tables import TABLES, StoredCall, Tables, reading

T = TypeVar("T")


def open_run(folder: str | Path) -> Trace:
    """Open the run in `folder`. Steps are read on access.

    :raises BackprobeError: there is no run, it has another format, or it is damaged. Accessing a step of a damaged run
        raises it too.
    """
    file = inside(Path(folder), FILE)
    if not file.is_file():
        raise BackprobeError(f"no run in {folder}: {FILE} is not there (backprobe runs lists those that are)")
    for suffix in ("-wal", "-shm", "-journal"):  # SQLite opens them too
        inside(Path(folder), FILE + suffix)
    with reading(file, "is damaged or not a run"):
        try:
            return _opened(connect(file), file)
        except sqlite3.OperationalError as error:
            if not needs_room(error):
                raise
            try:
                with settled(file) as there:
                    return _opened(connect(there, unchanging=True), file)
            except OSError as full:
                raise BackprobeError(f"{file} cannot be read: {full}") from error


def _opened(db: sqlite3.Connection, file: Path) -> Trace:
    """Read a trace from an open file in one transaction; the connection is closed if that fails."""
    try:
        db.execute("begin")  # all reads see one moment, even if another process writes
        with db:
            return _trace(_tables(db, file), file)
    except BaseException:
        db.close()
        raise


def _tables(db: sqlite3.Connection, file: Path) -> Tables:
    """Return the tables of a run's file after checking its format.

    :raises BackprobeError: another version of backprobe wrote it.
    :raises ValueError: the file is damaged.
    """
    check_tables(db, TABLES)
    query = "select key, value from info where key in ('format', 'backprobe')"
    found = {key: json.loads(value) for key, value in db.execute(query)}
    written = found.get("format")
    if type(written) is not int or written < 1:
        raise ValueError(f"its format is {written!r}")
    if written != FORMAT:
        version = found.get("backprobe", "(unknown version)")
        advice = "upgrade" if written > FORMAT else f"read the run with backprobe {version}"
        raise BackprobeError(
            f"{file} was written by backprobe {version} (format {written}); "
            f"this is backprobe {__version__}, which reads format {FORMAT}: {advice}"
        )
    return Tables(db)


def _trace(tables: Tables, file: Path) -> Trace:
    """Return the trace of a run's file: info, facts and findings are decoded, steps are read on access.

    Findings of a run that is not over are computed.
    """
    info, rows = _checked(tables.info()), tables.records()
    decoder = Decoder(tables.fields)
    found = rows.pop("Finding", None)
    findings = explain if found is None else [decoder(Finding, row) for row in found]
    facts = facts_from(rows, info.pop("asked", ()), decoder)
    for key in ("script", "folder"):
        if isinstance(info.get(key), str):
            info[key] = at_home(info[key])
    if isinstance(kept := info.get("sources"), dict):
        info["sources"] = {at_home(name): text for name, text in kept.items()}
    return Trace(StoredSteps(tables, decoder, file), facts, info, findings)


#: Types of the run's info entries that a reader uses.
_INFO: dict[str, Any] = {
    **dict.fromkeys(("script", "folder", "machine", "level", "torch", "python", "backprobe", "part"), str),
    **dict.fromkeys(("pid", "steps", "backwards", "skipped", "thinned", "first_steps"), int),
    **dict.fromkeys(("started", "seconds", "ended"), float),
    **dict.fromkeys(("cost", "first_cost", "own"), float | None),
    **dict.fromkeys(("signal", "code"), int | None),
    "error": str | None,
    **dict.fromkeys(("arguments", "asked"), tuple[str, ...]),
    "sources": Mapping[str, str],
}


#: Upper limit of times in seconds since 1970, and of durations: the year 3000.
_LATEST = 32_503_680_000


def _checked(info: dict[str, Any]) -> dict[str, Any]:
    """Return `info` after checking the types and ranges of its entries.

    :raises ValueError, TypeError: an entry is invalid.
    """
    decoder = Decoder()
    for key, kind in _INFO.items():
        if key in info:
            decoder(kind, info[key])
            if info[key] is None and type(None) not in typing.get_args(kind):
                raise TypeError(f"{key} is None")
            if kind is float and not abs(info[key]) < _LATEST:
                raise ValueError(f"{key} is {info[key]}")
    return info


#: The most cached layouts, signatures and lists of names, and the most nodes or names in them together.
MAX_KEPT, MAX_KEPT_PARTS = 32, 1 << 20


class _Sized(Generic[T]):
    """A cache of recently read values by number, limited by their number and total size.

    :param read: reads one; ``size`` returns its number of parts.
    """

    def __init__(self, read: Callable[[int], T], size: Callable[[T], int]) -> None:
        self._read, self._size = read, size
        self._kept: dict[int, T] = {}

    def __call__(self, number: int) -> T:
        """Return a value, reading it if it is not cached; the least recently used ones are dropped."""
        found = self._kept.pop(number, None)
        if found is None:
            found = self._read(number)
        self._kept[number] = found
        while len(self._kept) > MAX_KEPT or (len(self._kept) > 1 and self._parts() > MAX_KEPT_PARTS):
            del self._kept[next(iter(self._kept))]
        return found

    def _parts(self) -> int:
        """Return the total size of the cached values."""
        return sum(map(self._size, self._kept.values()))


def _row(step: Step, names: Sequence[str] = (), values: Sequence[float] = ()) -> StepRow:
    """Return the numbers of a step as a row."""
    held = step.resident, step.allocated, step.graphs, step.watching, step.clip_norm
    return StepRow(step.index, step.seconds, step.loss, names, values, step.calls, step.scale, *held)


class StoredSteps(Shown, Sequence[TracedStep]):
    """The steps of a run on disk, as a sequence; each is read on access.

    :raises BackprobeError: from any read: the file is damaged, or was closed.
    """

    def __init__(self, tables: Tables, decoder: Decoder, file: Path) -> None:
        self._tables, self._decode, self._file = tables, decoder, file
        self._ids, self._stretches = tables.numbers(), tables.stretches()
        if not all(type(number) is int for number in self._ids):
            raise ValueError("a step has no number")
        self._layout = _Sized(self._read_layout, lambda layout: len(layout.nodes))
        self._signature = _Sized(self._read_signature, lambda signature: len(signature.out) + len(signature.came))
        self._names = _Sized(self._read_names, len)
        self._brief = _Sized(self._read_brief, len)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        number = self._ids[i]
        with reading(self._file):
            step, trail = self._step(number)
        return TracedStep(step, StoredCalls(self, number), lambda: self.module_calls(trail))

    def _step(self, number: int) -> tuple[Step, int | None]:
        """Read the step `number`, and the number of its module calls; ``None`` for these if it has none."""
        brief = self._brief_step(number)
        if brief is not None:
            return brief, None
        row = self._tables.step(number)
        if row is None:  # the step during which the run was killed
            return Step(number, 0.0, None, ()), None
        values = [None if v == -1.0 else v for v in array("d", row.parameters)]
        triples = zip(values[0::3], values[1::3], values[2::3], strict=True)
        stats = (ParameterStat(name, *of) for name, of in zip(self._names(row.names), triples, strict=False))
        return dataclasses.replace(self._decode(Step, row.head), parameters=tuple(stats)), row.trail

    def _brief_step(self, number: int) -> Step | None:
        """Return the step `number` if it was written in a row with other brief steps; otherwise ``None``."""
        at = bisect_right(self._stretches, number, key=itemgetter(0)) - 1
        if at < 0 or number >= sum(self._stretches[at]):
            return None
        first = self._stretches[at][0]
        return self._brief(first)[number - first]

    def _read_brief(self, first: int) -> list[Step]:
        """Read the stretch of brief steps that begins with step `first`."""
        return list(brief_from(first, *self._tables.stretch(first)))

    def close(self) -> None:
        """Close the file; no step can be read any more."""
        self._tables.db.close()

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self._file.parent

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the steps, by position."""
        return self._ids

    def rows(self, first: int = 0, end: int | None = None) -> Iterator[StepRow]:
        """Iterate over the numbers of steps; see ``Trace.step_rows``."""
        for number in self._ids[first:end]:
            with reading(self._file):
                brief = self._brief_step(number)
                row = self._tables.step(number) if brief is None else None
                if brief is not None:
                    found = _row(brief)
                elif row is None:
                    found = StepRow(number, 0.0, None, (), ())
                else:
                    values = array("d", row.parameters)
                    found = _row(self._decode(Step, row.head), self._names(row.names), values)
            yield found

    def statistics(self, after: int = -1) -> list[Measured]:
        """Return the statistics of the steps after step `after` that have some."""
        with reading(self._file):
            rows = self._tables.statistics(after)
            return [Measured(step, self._names(names), array("f", data)) for step, names, data in rows]

    def _read_names(self, number: int) -> tuple[str, ...]:
        """Read a list of parameter or layer names by its number."""
        return tuple(check_name(name) for name in self._decode(tuple[str, ...], self._tables.part("names", number)))

    def _read_layout(self, number: int) -> Layout:
        """Read a layout by its number."""
        return layout_from(self._tables.part("layouts", number), self._decode)

    def _read_signature(self, number: int) -> Signature:
        """Read a signature by its number."""
        return signature_from(self._tables.part("signatures", number))

    def module_calls(self, trail: int | None) -> tuple[ModuleCall, ...]:
        """Return the module calls of a step, which several steps share under one number (`trail`)."""
        if trail is None:
            return ()
        with reading(self._file):
            return tuple(self._decode(ModuleCall, call) for call in self._tables.part("trails", trail))

    def backwards(self, step: int) -> list[BackwardCall]:
        """Read the backward calls of a step."""
        with reading(self._file), self._tables.moment():
            return [self._backward(row) for row in self._tables.calls(step)]

    def _backward(self, row: StoredCall) -> BackwardCall:
        """Return a backward call from its row; its nodes are unpacked on access."""
        call = self._decode(BackwardCall, row.head)
        packed = Packed(
            self._layout(row.layout),
            self._signature(row.signature),
            array("d", row.norms),
            array("f", row.seconds),
            frozenset(row.apart.get("unmeasured", ())),
            {int(slot): self._decode(BadValues, bad) for slot, bad in row.apart.get("bad", {}).items()},
            call.raised is not None,
        )
        return dataclasses.replace(call, nodes=StoredNodes(packed, self._file))


class StoredNodes(PackedNodes):
    """The nodes of a backward call on disk, which are unpacked on access."""

    def __init__(self, packed: Packed, file: Path) -> None:
        super().__init__(packed)
        self._file = file

    def _unpacked(self) -> tuple[NodeRun, ...]:
        """Return the records of all nodes.

        :raises BackprobeError: they are damaged.
        """
        with reading(self._file):
            return super()._unpacked()


class StoredCalls(Shown, Sequence[BackwardCall]):
    """The backward calls of one step, read on access."""

    def __init__(self, steps: StoredSteps, step: int) -> None:
        self._steps, self._step = steps, step
        self._read: list[BackwardCall] | None = None

    def _all(self) -> list[BackwardCall]:
        """Return the calls, reading them the first time."""
        if self._read is None:
            self._read = self._steps.backwards(self._step)
        return self._read

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, i: Any) -> Any:
        return self._all()[i]
