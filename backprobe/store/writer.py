"""Write a run as it happens. A step is committed when it is over: a killed process loses no finished one.

Note [What survives a crash]: Write-ahead logging without a flush to the disk at each commit: what is committed survives
    the process, and a power cut costs the last steps but not the file.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BackprobeError
from ..packed import Layout, Packed, PackedNodes, Signature, pack
from ..records import BackwardCall, Facts, Finding, ModuleCall, Step
from . import FILE, FORMAT
from .codec import dumps, facts_plain, layout_bytes, signature_bytes, squeeze, to_plain

if TYPE_CHECKING:
    from ..traced import Trace

_TABLES = """
create table info (key text primary key, value text);
create table layouts (id integer primary key, data blob);
create table signatures (id integer primary key, data blob);
create table trails (id integer primary key, data blob);
create table steps (id integer primary key, head text, parameters blob, trail integer);
create table names (id integer primary key, data text);
create table backwards (
    id integer primary key, step integer, trouble integer, layout integer, signature integer,
    head text, norms blob, seconds blob);
create index backwards_step on backwards (step);
"""


class Writer:
    """Writes one run folder.

    :param limit: bytes that the run may take, about. Above it every other step loses its nodes, oldest first; steps
        with trouble and the first ones stay, and so do the numbers of every step.
    :raises BackprobeError: the folder cannot be made or holds something already.
    """

    def __init__(self, folder: Path, info: Mapping[str, Any], limit: int = 256 << 20) -> None:
        self.folder = folder
        self.limit = limit
        self.thinned = 0
        self._stride = 1
        self._thin_at = 0
        self._bytes = 0
        self._layouts: dict[int, tuple[Any, int]] = {}
        self._signatures: dict[int, tuple[Signature, int]] = {}
        self._trails: dict[Any, int] = {}
        self._names: dict[tuple[str, ...], int] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise BackprobeError(f"{folder} is not empty: a run needs a folder of its own")
            self._db = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
            self._db.execute("pragma journal_mode=wal")
            self._db.execute("pragma synchronous=normal")
            self._db.execute("begin")
            for statement in _TABLES.split(";"):
                self._db.execute(statement)
            self.put({"format": FORMAT, **info})
            self._db.execute("commit")
        except (OSError, sqlite3.Error) as error:
            raise BackprobeError(f"cannot write a run to {folder}: {error}") from error
        self._db.execute("begin")

    def put(self, info: Mapping[str, Any]) -> None:
        for key, value in info.items():
            self._db.execute("insert or replace into info values (?, ?)", (key, json.dumps(value, default=str)))

    def _new(self, table: str, data: bytes) -> int:
        self._bytes += len(data)
        return int(self._db.execute(f"insert into {table} (data) values (?)", (data,)).lastrowid or 0)

    def layout(self, key: Any, layout: Layout) -> int:
        """Number of `layout`, written where it is new. `key` stays the same while it does."""
        known = self._layouts.get(id(key))
        if known is not None and known[0] is key:
            return known[1]
        number = self._new("layouts", layout_bytes(layout))
        self._layouts[id(key)] = (key, number)
        while len(self._layouts) > 256:
            del self._layouts[next(iter(self._layouts))]
        return number

    def rename(self, layouts: Mapping[int, Layout]) -> None:
        """Write layouts again whose names of modules were not yet known when they were written."""
        for number, layout in layouts.items():
            self._db.execute("update layouts set data = ? where id = ?", (layout_bytes(layout), number))

    @property
    def layouts(self) -> Sequence[tuple[Any, int]]:
        """The keys of the layouts written lately, and their numbers."""
        return list(self._layouts.values())

    def backward(self, call: BackwardCall, packed: Packed, key: Any, trouble: bool) -> None:
        known = self._signatures.get(id(packed.signature))
        if known is not None and known[0] is packed.signature:
            signature = known[1]
        else:
            signature = self._new("signatures", signature_bytes(packed.signature))
            self._signatures[id(packed.signature)] = (packed.signature, signature)
            while len(self._signatures) > 256:
                del self._signatures[next(iter(self._signatures))]
        head = dumps(
            {
                "kind": call.kind,
                "arguments": call.arguments,
                "roots": call.roots,
                "site": call.site,
                "seconds": call.seconds,
                "raised": call.raised,
                "bad_nodes": call.bad_nodes,
                "bad_ops": call.bad_ops,
                "inside": call.inside,
                "mutation": call.mutation,
                "reuse": call.reuse,
                "unmeasured": sorted(packed.unmeasured),
                "bad": packed.bad,
            }
        )
        norms, seconds = array("d", packed.norms).tobytes(), array("f", packed.seconds).tobytes()
        self._bytes += len(head) + len(norms) + len(seconds) + 64
        self._db.execute(
            "insert or replace into backwards values (?, ?, ?, ?, ?, ?, ?, ?)",
            (call.index, call.step, int(trouble), self.layout(key, packed.layout), signature, head, norms, seconds),
        )

    def step(self, step: Step, trail_key: Any, calls: Any) -> None:
        """Write a finished step and commit. `calls` gives its module calls, asked for where `trail_key` is new."""
        trail = self._trails.get(trail_key)
        if trail is None:
            trail = self._trails[trail_key] = self._new("trails", squeeze([to_plain(c) for c in calls()]))
            while len(self._trails) > 64:
                del self._trails[next(iter(self._trails))]
        names = tuple(p.name for p in step.parameters)
        number = self._names.get(names)
        if number is None:
            number = self._names[names] = len(self._names)
            self._db.execute("insert into names values (?, ?)", (number, json.dumps(names)))
        values = array("d", (_or_less(v) for p in step.parameters for v in (p.weight, p.grad, p.update)))
        head = json.dumps([step.seconds, step.loss, list(step.backwards), step.watching, number])
        self._bytes += len(head) + 8 * len(values) + 32
        self._db.execute(
            "insert or replace into steps values (?, ?, ?, ?)", (step.index, head, values.tobytes(), trail)
        )
        self.commit()
        if self._bytes > max(self.limit, self._thin_at):
            self._thin(step.index)

    def commit(self) -> None:
        self._db.execute("commit")
        self._db.execute("begin")

    def _thin(self, now: int) -> None:
        self._stride = min(2 * self._stride, 1 << 30)
        before = self._db.total_changes
        self._db.execute(
            "delete from backwards where trouble = 0 and step > 3 and step < ? and step % ? != 0",
            (now - 3, self._stride),
        )
        self.thinned += self._db.total_changes - before
        # Graphs and signatures that no call uses any longer; those that the next call may name stay.
        for table, column, held in (
            ("layouts", "layout", [n for _, n in self._layouts.values()]),
            ("signatures", "signature", [n for _, n in self._signatures.values()]),
        ):
            used = ",".join(map(str, held)) or "0"
            self._db.execute(
                f"delete from {table} where id not in (select {column} from backwards) and id not in ({used})"
            )
        if self._stride > 64:  # what grows now are the steps' own numbers
            self._db.execute(
                "update steps set parameters = x'' where id > 3 and id < ? and id % ? != 0",
                (now - 3, self._stride // 64),
            )
        self.commit()
        pages, free, size = (
            self._db.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        self._bytes = (pages - free) * size
        self._thin_at = self._bytes + self._bytes // 8  # not again at every step

    def close(self, facts: Facts, findings: Sequence[Finding]) -> None:
        """Write what is known at the end, and the findings."""
        self.put({"facts": facts_plain(facts), "findings": to_plain(findings), "ended": time.time()})
        self.put({"thinned": self.thinned})
        self._db.execute("commit")
        self._db.execute("pragma wal_checkpoint(truncate)")
        self._db.close()


def _or_less(value: float | None) -> float:
    return -1.0 if value is None else value  # a norm is never negative, and may be NaN


def save(trace: Trace, folder: Path, limit: int = 1 << 30) -> Path:
    """Write `trace` to `folder`, whole."""
    writer = Writer(folder, {"started": time.time(), **trace.info, "pid": os.getpid()}, limit)
    for traced in trace.steps:
        for call in traced.backwards:
            packed = call.nodes.packed if isinstance(call.nodes, PackedNodes) else pack(call.nodes)
            writer.backward(call, packed, packed.layout, bool(call.bad_nodes or call.raised or call.bad_ops))
        calls: tuple[ModuleCall, ...] = tuple(traced.module_calls)
        writer.step(traced.record, calls, lambda calls=calls: calls)
    writer.close(trace.facts, trace.findings)
    return folder
