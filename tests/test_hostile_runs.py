"""Runs that are damaged, or that a stranger has made to do harm: each command that reads one ends with what it says or
with one line, in bounded memory, and sends nothing to the terminal that a terminal obeys."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gzip
import io
import json
import os
import random
import re
import shutil
import socket
import sqlite3
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from corpora import STORED_RUNS_FOLDER

from backprobe import BackprobeError
from backprobe.basics import untrusted
from backprobe.commands import main
from backprobe.comparing.files import TapeWriter
from backprobe.records import Print, Site, Taken, TapeOp
from backprobe.store import FILE, FORMAT, opening, tables
from backprobe.store.codec import checksum
from backprobe.store.reader import open_run

RUNS = STORED_RUNS_FOLDER / f"format-{FORMAT}"
#: What a terminal obeys, or shows in another order, but for a newline and a tab.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
#: Tables with JSON in them, and the column that has it.
JSON = {"info": "value", "records": "data", "layouts": "data", "signatures": "data", "trails": "data", "names": "data"}
JSON |= {"steps": "head", "backwards": "head"}
PACKED = ("records", "layouts", "signatures", "trails", "names")


def copied(place: Path, name: str = "nan") -> Path:
    """A run in a folder of its own in `place`."""
    folder = place / "run"
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(RUNS / name, folder)
    return folder


def commands(folder: Path) -> dict[str, list[str]]:
    return {
        "show": ["show", str(folder)],
        "json": ["show", "--json", "--all", str(folder)],
        "github": ["show", "--format", "github", str(folder)],
        "report": ["report", "-o", str(folder.parent / "page.html"), str(folder)],
        "top": ["top", "--once", str(folder)],
        "runs": ["runs", str(folder.parent)],
    }


def given_to(command: list[str]) -> tuple[int, str, str]:
    """Exit code and output of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    return code, out.getvalue(), err.getvalue()


def check(folder: Path, what: str, *, damaged: bool = False) -> None:
    """Each command reads the run in `folder` or says in one line why not.

    :param damaged: none reads it, and the list of runs says so.
    """
    for name, command in commands(folder).items():
        code, out, err = given_to(command)
        assert not OBEYED.search(out + err), (what, name, OBEYED.search(out + err))
        if damaged and name == "runs":
            assert code == 0 and " damaged" in out, (what, out)
        elif damaged:
            assert code == 2, (what, name, out)
        if code:
            assert (code, out) == (2, ""), (what, name)
            assert err.startswith("backprobe: ") and err.count("\n") == 1 and len(err) < 800, (what, name, err)
            assert not damaged or "damaged" in err or "no run in" in err, (what, name, err)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as db:
        yield db


def rewritten(db: sqlite3.Connection, table: str, change: Callable[[str, Any], Any]) -> None:
    """Put what `change` makes of the JSON of each row of `table` in its place, with a checksum that is right."""
    column = JSON[table]
    columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
    for row in db.execute(f"select * from {table}").fetchall():
        values = dict(zip(columns, row, strict=True))
        data = values[column]
        plain = json.loads(zlib.decompress(data) if table in PACKED else data)
        text = json.dumps(change(str(row[0]), plain))
        values[column] = zlib.compress(text.encode()) if table in PACKED else text
        store(db, table, values)


def store(db: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    *written, crc = values
    assert crc == "crc"
    row = [values[name] for name in written]
    marks = ", ".join("?" for _ in values)
    db.execute(f"insert or replace into {table} values ({marks})", (*row, checksum(table, *row)))


HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 10**400, 1.5, -0.0, float("nan"), float("inf"), 1e308),
    *(
        "",
        "x",
        "\x1b]52;c;aGk=\x07",
        "\x9b31m",
        "a\u202eb",
        "[red]",
        "\ud800",
        "\u2028",
        "\r\n::error::x",
        "9" * 30,
        ".",
    ),
    *([], [[]], {}, {"": None}, [None], ["a", 1], [[1, 2], [3]], "../" * 20, "x" * 300, "\0", "/dev/zero"),
]


def places(plain: Any) -> list[tuple[Any, Any]]:
    """Each container within `plain`, with each key of it."""
    found, stack = [], [plain]
    while stack:
        one = stack.pop()
        keys = range(len(one)) if isinstance(one, list) else list(one) if isinstance(one, dict) else ()
        for key in keys:
            found.append((one, key))
            stack.append(one[key])
    return found


def swapped(draw: random.Random) -> Callable[[str, Any], Any]:
    """A change that puts something else into one or two places of one JSON value."""

    def change(key: str, plain: Any) -> Any:
        if key in ("format", "fields") and draw.random() < 0.9:
            return plain
        for _ in range(draw.randrange(3)):
            there = places(plain)
            if not there or draw.random() < 0.02:
                return copy.deepcopy(draw.choice(HOSTILE))
            where, at = draw.choice(there)
            how = draw.random()
            if how < 0.7:
                where[at] = copy.deepcopy(draw.choice(HOSTILE))
            elif how < 0.85:
                del where[at]
            elif isinstance(where, list):
                where.extend(copy.deepcopy([where[at]] * draw.choice([1, 3])))
        return plain

    return change


def sweep(place: Path, seeds: range, name: str = "nan") -> None:
    for seed in seeds:
        draw = random.Random(seed)
        folder = copied(place, name)
        with opened(folder) as db:
            table = draw.choice(list(JSON))
            rewritten(db, table, swapped(draw))
        check(folder, f"seed {seed}: {table} of {name}")


def test_values_of_other_types_with_checksums_that_are_right(tmp_path: Path) -> None:
    for name in ("nan", "memory", "every"):
        sweep(tmp_path, range(12), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nan", "memory", "every", "ranks"])
def test_many_values_of_other_types(tmp_path: Path, name: str) -> None:
    sweep(tmp_path, range(1000, 1120), name)


def test_bytes_that_are_others(tmp_path: Path) -> None:
    for seed in range(10):
        draw = random.Random(seed)
        folder = copied(tmp_path)
        data = bytearray((folder / FILE).read_bytes())
        for _ in range(draw.choice([1, 4, 40])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        (folder / FILE).write_bytes(data)
        check(folder, f"seed {seed}")


ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select i, i, i from n"
SCHEMAS = {
    "an endless view": ["drop table info", f"create view info (key, value, crc) as {ENDLESS}"],
    "an endless view of steps": ["drop table steps", f"create view steps (id, head, crc) as {ENDLESS}"],
    "a view of what was there": ["alter table info rename to other", "create view info as select * from other"],
    "a virtual table": ["drop table records", "create virtual table records using fts5(kind, data, crc)"],
    "a column that is worked out": [
        "drop table names",
        "create table names (id integer primary key, data blob as (zeroblob(1000000000)), crc integer)",
    ],
    "a table of another shape": ["drop table steps", "create table steps (id)", "insert into steps values ('x')"],
    "no tables": [f"drop table if exists {table}" for table in tables.TABLES],
    "an index in the place of a table": ["drop table trails", "create index trails on steps (id)"],
}


@pytest.mark.parametrize("what", SCHEMAS)
def test_a_schema_that_is_another(tmp_path: Path, what: str) -> None:
    folder = copied(tmp_path)
    with opened(folder) as db:
        for statement in SCHEMAS[what]:
            db.execute(statement)
    check(folder, what, damaged=True)


def test_triggers_do_not_run(tmp_path: Path) -> None:
    """Nothing is written, so none can."""
    folder = copied(tmp_path)
    with opened(folder) as db:
        db.execute("create trigger t after insert on info begin delete from steps; end")
    check(folder, "a trigger")
    trace = open_run(folder)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        trace.steps._tables.db.execute("delete from steps")  # type: ignore[attr-defined]
    trace.close()


def test_a_query_without_end_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MAX_QUERY_WORK", 5_000_000)
    db = opening.connect(copied(tmp_path) / FILE)
    for _ in range(2):  # each query has the bound for itself
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            db.execute(ENDLESS.replace("select i, i, i from n", "select max(i) from n")).fetchall()
    assert db.execute("select count(*) from info").fetchone()[0] > 10
    db.close()


def test_reading_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    check(folder, "a sound run")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def of_all(table: str, plain: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with opened(folder) as db:
            rewritten(db, table, lambda key, old: plain)

    return change


def raw(table: str, key: str, data: bytes) -> Callable[[Path], None]:
    """Puts a compressed value into one row."""

    def change(folder: Path) -> None:
        with opened(folder) as db:
            name = "kind" if table == "records" else "id"
            store(db, table, {name: key, "data": data, "crc": 0})

    return change


def circle(folder: Path) -> None:
    def change(key: str, plain: Any) -> Any:
        edges = plain["nodes"]["edges"]
        edges[-1] = [0, 0]
        edges[0] = [len(edges) - 1, 0]
        return plain

    with opened(folder) as db:
        rewritten(db, "layouts", change)


def text_in_the_place_of(key: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with opened(folder) as db:
            store(db, "info", {"key": key, "value": value, "crc": 0})

    return change


DEEP_JSON = "[" * 100_000 + "]" * 100_000
DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bomb": raw("records", "Parameter", zlib.compress(bytes(100 << 20), 9)),
    "a bomb that is JSON": raw("records", "Unseen", zlib.compress(b"[" + b"0," * (50 << 20) + b"0]", 9)),
    "deep JSON in a record": raw("records", "Unseen", zlib.compress(DEEP_JSON.encode())),
    "deep JSON in the info": text_in_the_place_of("error", DEEP_JSON),
    "a number of many digits": text_in_the_place_of("pid", "9" * 100_000),
    "a time that is none": text_in_the_place_of("started", '"x"'),
    "a time out of reach": text_in_the_place_of("started", "1e300"),
    "steps without number": text_in_the_place_of("steps", "1e400"),
    "no fields": text_in_the_place_of("fields", "7"),
    "a record that is a number": of_all("records", 7),
    "a record of another length": of_all("records", [[1]]),
    "a world of many ranks": of_all("records", [{"rank": 0, "pid": 1, "world": 2**60}]),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_values_that_no_run_has(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_RECORDS_BYTES", 1 << 20)
    folder = copied(tmp_path)
    DAMAGES[what](folder)
    tracemalloc.start()
    try:
        check(folder, what, damaged=True)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


STEP_DAMAGES: dict[str, Callable[[Path], None]] = {
    "a graph in a circle": circle,
    "a bomb of a graph": raw("layouts", "1", zlib.compress(b" " * (untrusted.MAX_VALUE_BYTES + 1), 9)),
    "a name without end": of_all("names", ["." * 1_000_000]),
    "names that are numbers": of_all("names", [1, 2]),
}


@pytest.mark.parametrize("what", STEP_DAMAGES)
def test_values_that_no_step_has(tmp_path: Path, what: str) -> None:
    """Damage of a step raises when the step is read; the list of runs does not read it."""
    folder = copied(tmp_path)
    STEP_DAMAGES[what](folder)
    trace = open_run(folder)
    with pytest.raises(BackprobeError, match=r"run.sqlite is damaged: "):
        repr([(s.record, s.module_calls, [list(c.nodes) for c in s.backwards]) for s in trace.steps])
    trace.close()
    check(folder, what)


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_folder(path: Path) -> None:
    path.mkdir()


def put_socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # the names of sockets are short
    try:
        with closing(socket.socket(socket.AF_UNIX)) as there:
            there.bind(path.name)
    finally:
        os.chdir(before)


def put_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
@pytest.mark.parametrize("put", [put_pipe, put_folder, put_socket, put_device])
def test_only_regular_files_are_read(tmp_path: Path, put: Callable[[Path], None]) -> None:
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal"):
        folder = copied(tmp_path)
        (folder / name).unlink(missing_ok=True)
        put(folder / name)
        for command in commands(folder).values():
            code, out, err = given_to(command)
            harmless = put is put_folder and name.endswith("-shm")  # as in a folder that cannot be written to
            refused = code == 2 and "\n" not in err[:-1]
            assert refused or "runs" in command or (harmless and code == 0), (name, command, out, err)
    for name in ("job.json", "parts/1/seen.json", "parts/1/code", "parts/1/crash", "parts/1/run.sqlite"):
        folder = copied(tmp_path)
        part = folder / "parts" / "1"
        part.mkdir(parents=True)
        seen = {"fields": {"RankSeen": ["rank", "pid", "over"]}, "seen": [0, 1, False]}
        (part / "seen.json").write_text(json.dumps(seen))
        (folder / name).unlink(missing_ok=True)
        put(folder / name)
        check(folder, name)


def recorded(folder: Path) -> Path:
    """A run with what is compared: two ops and a gradient."""
    site = Site("train.py", 3, "main", "loss = x * y")
    ops = [
        TapeOp(0, 0, "forward", "mul.Tensor", "m", 1, site, arguments=([{"t": 0}, 2.0], {}), inputs=(Taken(0, 0, -1),)),
        TapeOp(1, 0, "backward", "neg", "m", 1, site, arguments=([{"t": 0}], {}), inputs=(Taken(1, 0, 0),)),
        TapeOp(2, 0, "sink", "gradient", "w", arguments=([{"t": 0}], {}), inputs=(Taken(1, 1, 0),)),
    ]
    ops = [dataclasses.replace(op, outputs=(at + 1,)) if at < 2 else op for at, op in enumerate(ops)]
    prints = [Print((2,), "float32", f"h{at}", 1.0, 0, (1.0, 2.0)) for at in range(3)]
    writer = TapeWriter(folder)
    writer.about({"script": "train.py", "torch": "2"})
    writer.step(0, {"step": 0, "start": {}}, ops, prints)
    return folder


def test_recorded_ops_of_other_types(tmp_path: Path) -> None:
    recorded(tmp_path / "a")
    compare = ["compare", "--estimate", str(tmp_path / "a"), str(tmp_path / "b")]
    (file,) = recorded(tmp_path / "b").glob("compare/step-*.json.gz")
    about = file.with_name("about.json")
    whole = json.loads(gzip.decompress(file.read_bytes()))
    assert given_to(compare)[0] == 0
    for seed in range(60):
        draw = random.Random(seed)
        plain = swapped(draw)("", json.loads(json.dumps(whole)))
        file.write_bytes(gzip.compress(json.dumps(plain).encode()))
        told(compare, f"seed {seed}")
    for data in (
        b"",
        b"\x1f\x8b",
        gzip.compress(DEEP_JSON.encode()),
        gzip.compress(b"7"),
        gzip.compress(b'{"ops": []}'),
    ):
        file.write_bytes(data)
        told(compare, repr(data[:20]))
    for text in ("", "[]", "7", '"x"', "null", DEEP_JSON):
        about.write_text(text)
        told(compare, text[:20])


def told(command: list[str], what: str) -> None:
    code, out, err = given_to(command)
    assert code in (0, 1, 2) and not OBEYED.search(out + err), what
    assert bool(out) != bool(err) and err.count("\n") <= 1 and len(err) < 800, (what, out, err)


def test_one_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    with opened(folder) as db:
        rewritten(db, "records", lambda key, old: 7)
    shutil.copytree(RUNS / "nan", tmp_path / "sound")
    code, out, _ = given_to(["runs", str(tmp_path)])
    lines = {line.split()[0]: line for line in out.splitlines()[1:] if line[:1].strip()}
    assert code == 0 and "damaged" in lines["run"] and "nonfinite-forward" in lines["sound"]
