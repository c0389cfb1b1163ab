"""Read a run folder as a ``Trace``. Never imports torch."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import BackprobeError
from ..packed import Layout, Packed, PackedNodes, Signature
from ..records import (
    BackwardCall,
    BadNode,
    BadOp,
    BadValues,
    Finding,
    ModuleCall,
    Mutation,
    ParameterStat,
    Raised,
    Reuse,
    Root,
    Site,
    Step,
)
from ..traced import StepRow, Trace, TracedStep
from . import FILE, FORMAT
from .codec import facts_from, from_plain, layout_from, signature_from, unsqueeze


def open_run(folder: str | Path) -> Trace:
    """The run in `folder`. Steps are read when they are looked at.

    :raises BackprobeError: no run there, one of another format, or a damaged one.
    """
    file = Path(folder) / FILE
    if not file.is_file():
        raise BackprobeError(f"no run in {folder}: {FILE} is not there (backprobe runs lists those that are)")
    try:
        db = sqlite3.connect(file)
        info = {key: json.loads(value) for key, value in db.execute("select key, value from info")}
    except (sqlite3.Error, ValueError) as error:
        raise BackprobeError(f"{file} is damaged or not a run: {error}") from error
    if info.get("format") != FORMAT:
        raise BackprobeError(f"{file} has format {info.get('format')!r}; this backprobe reads format {FORMAT}")
    try:
        steps = StoredSteps(db)
        return Trace(
            steps,
            facts_from(info.pop("facts")) if "facts" in info else None,
            info,
            [_finding(f) for f in info.pop("findings")] if "findings" in info else None,
        )
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        raise BackprobeError(f"{file} is damaged: {error}") from error


def _finding(plain: list[Any]) -> Finding:
    return from_plain(Finding, plain)


class StoredSteps(Sequence[TracedStep]):
    """The steps of a run on disk."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids = [row[0] for row in db.execute("select id from steps order by id")]
        # A killed run: the backward calls of the step that was not over.
        last = self._ids[-1] if self._ids else -1
        for (step,) in db.execute("select distinct step from backwards where step > ? order by step", (last,)):
            self._ids.append(step)
        self._layout = lru_cache(32)(self._read_layout)
        self._signature = lru_cache(32)(self._read_signature)
        self._names = lru_cache(32)(self._read_names)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        number = self._ids[i]
        row = self._db.execute("select head, parameters, trail from steps where id = ?", (number,)).fetchone()
        if row is None:
            step, trail = Step(number, 0.0, None, ()), None
        else:
            seconds, loss, backwards, watching, names = json.loads(row[0])
            stats = tuple(
                ParameterStat(name, *(None if v == -1.0 else v for v in values))
                for name, values in zip(self._names(names), _triples(row[1]), strict=False)
            )
            step, trail = Step(number, seconds, loss, tuple(backwards), stats, watching), row[2]
        return TracedStep(step, StoredCalls(self, number), lambda: self._calls(trail))

    def close(self) -> None:
        self._db.close()

    @property
    def numbers(self) -> Sequence[int]:
        """The steps' own numbers, by position."""
        return self._ids

    def rows(self, first: int = 0, end: int | None = None) -> Iterator[StepRow]:
        """The numbers of steps; see ``Trace.step_rows``."""
        for number in self._ids[first:end]:
            row = self._db.execute("select head, parameters from steps where id = ?", (number,)).fetchone()
            if row is None:  # the step that a killed run was in
                yield StepRow(number, 0.0, None, (), ())
                continue
            seconds, loss, _, _, names = json.loads(row[0])
            yield StepRow(number, seconds, loss, self._names(names), array("d", row[1]))

    def _read_names(self, number: int) -> tuple[str, ...]:
        row = self._db.execute("select data from names where id = ?", (number,)).fetchone()
        return tuple(json.loads(row[0])) if row else ()

    def _calls(self, trail: int | None) -> tuple[ModuleCall, ...]:
        row = self._db.execute("select data from trails where id = ?", (trail,)).fetchone()
        return tuple(from_plain(ModuleCall, c) for c in unsqueeze(row[0])) if row else ()

    def _read_layout(self, number: int) -> Layout:
        return layout_from(self._db.execute("select data from layouts where id = ?", (number,)).fetchone()[0])

    def _read_signature(self, number: int) -> Signature:
        return signature_from(self._db.execute("select data from signatures where id = ?", (number,)).fetchone()[0])

    def backwards(self, step: int) -> list[BackwardCall]:
        query = "select id, layout, signature, head, norms, seconds from backwards where step = ? order by id"
        return [self._backward(step, *row) for row in self._db.execute(query, (step,)).fetchall()]

    def _backward(
        self, step: int, number: int, layout: int, signature: int, text: str, norms: bytes, seconds: bytes
    ) -> BackwardCall:
        head = json.loads(text)
        packed = Packed(
            self._layout(layout),
            self._signature(signature),
            array("d", norms),
            array("f", seconds),
            frozenset(head["unmeasured"]),
            {int(k): from_plain(BadValues, v) for k, v in head["bad"].items()},
            head["raised"] is not None,
        )
        return BackwardCall(
            number,
            step,
            head["kind"],
            head["arguments"],
            tuple(from_plain(Root, r) for r in head["roots"]),
            from_plain(Site, head["site"]),
            head["seconds"],
            from_plain(Raised, head["raised"]),
            PackedNodes(packed),
            tuple(from_plain(BadNode, b) for b in head["bad_nodes"]),
            tuple(from_plain(BadOp, b) for b in head["bad_ops"]),
            head["inside"],
            from_plain(Mutation, head["mutation"]),
            from_plain(Reuse, head["reuse"]),
        )


class StoredCalls(Sequence[BackwardCall]):
    """The backward calls of one step, read when they are looked at."""

    def __init__(self, steps: StoredSteps, step: int) -> None:
        self._steps, self._step = steps, step
        self._read: list[BackwardCall] | None = None

    def _all(self) -> list[BackwardCall]:
        if self._read is None:
            self._read = self._steps.backwards(self._step)
        return self._read

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, i: Any) -> Any:
        return self._all()[i]


def _triples(data: bytes) -> list[tuple[float, ...]]:
    values = array("d", data)
    return list(zip(values[0::3], values[1::3], values[2::3], strict=True))
