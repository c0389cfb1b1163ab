"""A stored run that is damaged or of another format: one clear error, or its sound part."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from corpora import STORED_RUNS_FOLDER
from hypothesis import given, settings
from hypothesis import strategies as st

import backprobe
from backprobe import BackprobeError, Trace
from backprobe.store import FILE, FORMAT
from backprobe.store.reader import open_run

FORMATS = [STORED_RUNS_FOLDER / f"format-{FORMAT}"]
WHOLE = {folder: (folder / "nan" / FILE).read_bytes() for folder in FORMATS}


def walk(trace: Trace) -> dict[int, str]:
    """Everything that there is to read; what the steps were, by number."""
    repr((trace.findings, trace.facts, trace.info, list(trace.step_rows())))
    return {s.index: repr((s.record, s.module_calls, [(c, list(c.nodes)) for c in s.backwards])) for s in trace.steps}


def put(folder: Path, data: bytes) -> Path:
    """A run folder with that file and nothing else."""
    for file in folder.iterdir():
        file.unlink()
    (folder / FILE).write_bytes(data)
    return folder


def read(folder: Path) -> dict[int, str] | None:
    """Read a run completely; return ``None`` if it raised a one-line error about the damage."""
    try:
        trace = open_run(folder)
        try:
            return walk(trace)
        finally:
            trace.close()
    except BackprobeError as error:
        assert "\n" not in str(error) and len(str(error)) < 400, error
        assert " is damaged" in str(error) or " reads format " in str(error), error
        return None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


def flipped(data: bytes, places: list[tuple[float, int]]) -> bytes:
    changed = bytearray(data)
    for at, value in places:
        changed[int(at * len(data))] = value
    return bytes(changed)


def emptied(data: bytes, at: float, length: int) -> bytes:
    begin = int(at * len(data))
    return data[:begin] + bytes(length) + data[begin + length :]


anywhere = st.floats(0, 1, exclude_max=True)
flips = st.lists(st.tuples(anywhere, st.integers(0, 255)), min_size=1, max_size=8)
damages: st.SearchStrategy[Callable[[bytes], bytes]] = st.one_of(
    flips.map(lambda places: lambda data: flipped(data, places)),
    anywhere.map(lambda at: lambda data: data[: int(at * len(data))]),
    st.tuples(anywhere, st.integers(1, 6000)).map(lambda hole: lambda data: emptied(data, *hole)),
    st.binary(max_size=300).map(lambda garbage: lambda data: garbage),
)


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
@given(damages)
@settings(deadline=None)
def test_a_damaged_file_is_reported(place: Path, folder: Path, damage: Callable[[bytes], bytes]) -> None:
    found, sound = read(put(place, damage(WHOLE[folder]))), read(put(place, WHOLE[folder]))
    assert sound is not None
    if found is not None:
        calls = "BackwardCall("
        assert all(sound[n] == step for n, step in found.items() if step.count(calls) == sound[n].count(calls))


def cell(folder: Path, draw: random.Random) -> str:
    """Put something else into one cell of a run's tables; what was done, "" for nothing."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as db:
        names = [row[0] for row in db.execute("select name from sqlite_master where type = 'table'")]
        table = draw.choice([name for name in names if db.execute(f"select count(*) from {name}").fetchone() != (0,)])
        columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
        column = draw.choice(columns)
        rows = db.execute(f"select {columns[0]}, {column} from {table}").fetchall()
        key, old = draw.choice(rows)
        new: Any = draw.choice([None, 0, 7, 2**40, 1.5, "", "x", b"", "[]", "{}", "null", '"a"', b"\0" * 7, "[1,2]"])
        if isinstance(old, (str, bytes)) and old and draw.random() < 0.7:
            at = draw.randrange(len(old))
            other: Any = draw.choice('0123456789"[]{},:nul.e-')
            new = old[:at] + (other if isinstance(old, str) else other.encode()) + old[at + draw.randrange(2) :]
        with suppress(sqlite3.IntegrityError):
            db.execute(f"update {table} set {column} = ? where {columns[0]} = ?", (new, key))
        if db.execute(f"select {columns[0]}, {column} from {table}").fetchall() == rows:
            return ""
    return f"{table}.{column} of {key}: {old!r:.60} is {new!r:.60}"


@pytest.mark.parametrize("folder", FORMATS, ids=lambda path: path.name)
@given(st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_value_that_is_another_is_damage(place: Path, folder: Path, draw: random.Random) -> None:
    what = cell(put(place, WHOLE[folder]), draw)
    found = read(place)
    if "backwards.step" not in what:
        assert (found is None) == bool(what), what


def edited(folder: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
    return folder


def copy(tmp_path: Path, name: str = "nan") -> Path:
    return put(tmp_path, (FORMATS[-1] / name / FILE).read_bytes())


def test_newer_damaged_and_missing_runs_are_distinguished(tmp_path: Path) -> None:
    newer = (
        f"run.sqlite was written by backprobe 9.9 (format {FORMAT + 1}); this is backprobe {backprobe.__version__}, "
        f"which reads format {FORMAT}: upgrade"
    )
    # A newer format may have other tables; these two keys stay.
    names = "delete from info where key not in ('format', 'backprobe')"
    values = f"update info set value = case key when 'format' then '{FORMAT + 1}' else '\"9.9\"' end"
    edited(copy(tmp_path), "drop table records", "drop table steps", names, values)
    with pytest.raises(BackprobeError) as said:
        open_run(tmp_path)
    assert str(said.value) == f"{tmp_path}/{newer}"
    older = (
        "update info set value = '1' where key = 'format'",
        "update info set value = '\"0.0.9\"' where key = 'backprobe'",
    )
    edited(copy(tmp_path), *older)
    with pytest.raises(BackprobeError, match=r"reads format 3: read the run with backprobe 0\.0\.9"):
        open_run(tmp_path)
    edited(copy(tmp_path), "delete from info where key = 'format'")
    with pytest.raises(BackprobeError, match=r"run.sqlite is damaged or not a run: its format is None"):
        open_run(tmp_path)
    edited(copy(tmp_path), "update info set value = '\"2\"' where key = 'format'")
    with pytest.raises(BackprobeError, match=r"is damaged or not a run: its format is '2'"):
        open_run(tmp_path)
    edited(copy(tmp_path), "drop table records")
    with pytest.raises(BackprobeError, match=r"is damaged or not a run: no such table: records"):
        open_run(tmp_path)
    edited(copy(tmp_path), "update info set value = '3' where key = 'steps'")
    with pytest.raises(BackprobeError, match=r"is damaged or not a run: a row of info is not what was written"):
        open_run(tmp_path)
    put(tmp_path, b"")
    with pytest.raises(BackprobeError, match=r"is damaged or not a run: no such table: info"):
        open_run(tmp_path)
    with pytest.raises(BackprobeError, match=r"no run in .*: run.sqlite is not there"):
        open_run(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("update backwards set norms = x'00' where id = 1", "a row of backwards is not what was written"),
        ("update layouts set data = x'00'", "a row of layouts is not what was written"),
        ("delete from signatures", "signatures has no row"),
        ("drop table trails", "no such table: trails"),
    ],
)
def test_damage_shows_at_the_step_that_has_it(tmp_path: Path, statement: str, text: str) -> None:
    trace = open_run(edited(copy(tmp_path), statement))
    assert [f.kind for f in trace.findings] == ["nonfinite-forward"]
    with pytest.raises(BackprobeError, match=rf"run.sqlite is damaged: {text}"):
        walk(trace)
    trace.close()
    with pytest.raises(BackprobeError, match=r"run.sqlite cannot be read: Cannot operate on a closed database"):
        walk(trace)


def test_a_file_that_another_process_holds_is_not_called_damaged(tmp_path: Path, monkeypatch: Any) -> None:
    connect = sqlite3.connect
    holder = connect(copy(tmp_path) / FILE)
    holder.execute("pragma locking_mode=exclusive")
    holder.execute("begin exclusive")
    holder.execute("delete from trails")
    monkeypatch.setattr(sqlite3, "connect", lambda file, **given: connect(file, 0, **given))
    with pytest.raises(BackprobeError, match=r"run.sqlite cannot be read: database is locked"):
        open_run(tmp_path)
    holder.rollback()
    holder.close()
    open_run(tmp_path).close()


def test_the_list_of_runs_reports_a_damaged_one(tmp_path: Path, capsys: Any) -> None:
    from backprobe.commands import main

    (tmp_path / "sound").mkdir()
    copy(tmp_path / "sound")
    (tmp_path / "newer").mkdir()
    edited(copy(tmp_path / "newer"), f"update info set value = '{FORMAT + 1}' where key = 'format'")
    assert main(["runs", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "nonfinite-forward" in said
    assert f"was written by backprobe {backprobe.__version__} (format {FORMAT + 1})" in said


def test_findings_are_the_ones_of_the_run(tmp_path: Path) -> None:
    expected = json.loads((FORMATS[-1] / "nan" / "expected.json").read_text())
    trace = open_run(copy(tmp_path))
    assert [f.as_dict()["title"] for f in trace.findings] == [f["title"] for f in expected["findings"]]
    trace.close()
