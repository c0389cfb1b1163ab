"""The files of a run: names from a run are never opened, and writing never follows a link."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import backprobe
from backprobe import Trace
from backprobe.basics.errors import BackprobeError
from backprobe.basics.files import add_to, inside, is_stream, replace_text, replacing
from backprobe.commands import main
from backprobe.commands.files import write_findings
from backprobe.records import Facts, Finding, FindingSite, KeptBatch, RankSeen, Site, Step
from backprobe.report.document import document
from backprobe.store import CODE, CRASH, FILE, PROCESS_DESCRIPTION, reader
from backprobe.store.batches import file_of, read_batch
from backprobe.store.crashes import read_crash
from backprobe.store.job import load_run
from backprobe.store.parts import JOB, PARTS, claim, locked, read_job, read_parts, unwatched, write_seen
from backprobe.store.settled import needs_room
from backprobe.traces import Steps, TracedStep
from backprobe.view.parts import report

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links and modes of POSIX")
ENV = {**os.environ, "PYTHONPATH": str(Path(backprobe.__file__).parents[1])}
SECRET = "root:x:0:0:the secret of another file"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside the run, whose first line must appear nowhere."""
    file = tmp_path / "outside" / "passwd"
    file.parent.mkdir()
    file.write_text(f"{SECRET}\nsecond {SECRET}\n")
    return file


def hostile(file: Path, **more: Any) -> Trace:
    """A trace whose records name `file` wherever a record can name one."""
    site = Site(str(file), 2, "main", "")
    finding = Finding(
        "inplace", "error", "t", "certain", sites=(FindingSite("mutated", site), FindingSite("failed", site))
    )
    seen = (RankSeen(None, 1, raised=site), *more.pop("seen", ()))
    info = {"script": str(file), "folder": str(file.parent), "started": 0.0, "steps": 1, **more}
    return Trace(Steps([TracedStep(Step(0, 0.1, 1.0, ()), [], tuple)]), Facts(seen=seen), info, [finding])


def test_a_file_that_a_run_names_is_not_opened(
    secret: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile(secret).save(tmp_path / "run")
    trace = backprobe.load_run(tmp_path / "run")
    assert SECRET not in str(document(trace))
    assert trace.sources == {}
    assert SECRET not in str(report(trace, tmp_path / "run", details=True))
    assert SECRET not in repr(trace.findings) + trace.findings._repr_html_()  # type: ignore[attr-defined]
    assert main(["show", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    assert SECRET not in "".join(capsys.readouterr())


def test_no_reader_uses_linecache() -> None:
    """``linecache`` opens whatever file it is given: what reads runs must not have it."""
    root = Path(backprobe.__file__).parent
    readers = ("store", "report", "view", "traced", "findings", "records", "comparing", "commands")
    files = {file for room in readers for file in (root / room).rglob("*.py")}
    files.remove(root / "commands" / "watcher.py")  # reads lines of the script that it runs
    assert [str(file) for file in files if "linecache" in file.read_text()] == []


def test_sources_of_a_run_that_are_no_text_are_passed_over(secret: Path, tmp_path: Path) -> None:
    for wrong in ([str(secret)], {str(secret): 5, "other": ["x"]}, "text", None):
        assert hostile(secret, sources=wrong).sources == {}


def test_the_line_of_a_crash_has_no_text_of_the_file_that_is_named(secret: Path, tmp_path: Path) -> None:
    part = claim(tmp_path / "run", "rank0") if (tmp_path / "run").mkdir() is None else tmp_path
    stack = (
        f'Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File "{secret}", line 1 in x\n'
    )
    (part / CRASH).write_text(stack)
    write_seen(part, RankSeen(0, 2**30, steps=1))
    found = read_crash(part)
    assert found is not None and found[1] == Site(str(secret), 1, "x", "")
    assert SECRET not in str(report(load_run(tmp_path / "run"), tmp_path / "run", details=True))


@pytest.mark.parametrize("name", ["../x", "..", ".", "", "/etc/passwd", "a/b", "a\\b", "nul\0"])
def test_a_name_that_leads_out_of_a_run_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BackprobeError, match="no name of a file"):
        inside(tmp_path, name)


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal"])
def test_a_link_out_of_the_run_is_not_read(name: str, tmp_path: Path) -> None:
    hostile(Path("/x")).save(tmp_path / "other")
    hostile(Path("/x")).save(tmp_path / "run")
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).symlink_to(tmp_path / "other" / FILE)
    with pytest.raises(BackprobeError, match="is a symbolic link out of"):
        backprobe.load_run(tmp_path / "run")
    os.rename(tmp_path / "run", tmp_path / "moved")  # a link to the folder itself is fine
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert len(backprobe.load_run(tmp_path / "link").steps) == 1


def test_a_link_inside_of_the_run_is_read(tmp_path: Path) -> None:
    hostile(Path("/x")).save(tmp_path / "run")
    os.rename(tmp_path / "run" / FILE, tmp_path / "run" / "stored")
    (tmp_path / "run" / FILE).symlink_to("stored")
    assert len(backprobe.load_run(tmp_path / "run").steps) == 1


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    part = claim(tmp_path / "run", "rank0")
    for file in (
        tmp_path / "run" / JOB,
        part / PROCESS_DESCRIPTION,
        part / CRASH,
        part / CODE,
        tmp_path / "run" / file_of(1),
    ):
        os.mkfifo(file)
    with pytest.raises(BackprobeError, match="neither a file nor a folder"):
        read_job(tmp_path / "run")
    with pytest.raises(BackprobeError, match="neither a file nor a folder"):
        read_batch(tmp_path / "run", 1)
    assert read_parts(tmp_path / "run") == {} and read_crash(part) is None


def test_parts_outside_of_the_run_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "other").mkdir()
    write_seen(claim(tmp_path / "other", "rank0"), RankSeen(0, 1, steps=1))
    write_seen(claim(tmp_path / "run", "rank1"), RankSeen(1, 1, steps=1))
    (tmp_path / "run" / PARTS / "rank0").symlink_to(tmp_path / "other" / PARTS / "rank0")
    assert [seen.rank for seen in read_parts(tmp_path / "run").values()] == [1]
    assert [one.count for one in unwatched(tmp_path / "run")] == [1]
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / PARTS).symlink_to(tmp_path / "other" / PARTS)
    assert read_parts(tmp_path / "linked") == {}


def test_a_batch_is_saved_under_its_own_name(secret: Path, tmp_path: Path) -> None:
    batch = KeptBatch(3, "why", f"../{secret.parent.name}/passwd", 1, 1, ())
    hostile(secret, seen=[batch]).save(tmp_path / "run")
    (tmp_path / "run" / file_of(3)).write_bytes(b"a batch")
    loaded = backprobe.load_run(tmp_path / "run")
    loaded.save(tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy" / file_of(3)).read_bytes() == b"a batch"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["copy"]
    assert secret.read_text().startswith(SECRET)
    (tmp_path / "run" / file_of(3)).unlink()
    (tmp_path / "run" / file_of(3)).symlink_to(secret)
    with pytest.raises(BackprobeError, match="symbolic link out of"):
        loaded.save(tmp_path / "again")
    assert not (tmp_path / "again" / file_of(3)).exists()


# Writing


def test_writing_replaces_a_link(secret: Path, tmp_path: Path) -> None:
    before, trace = secret.read_text(), hostile(secret)
    for name, write in {
        "findings.json": lambda path: write_findings(path, trace),
        "report.html": trace.report,
        "text": lambda path: replace_text(path, "text"),
    }.items():
        (tmp_path / name).symlink_to(secret)
        write(tmp_path / name)
        assert not (tmp_path / name).is_symlink() and (tmp_path / name).stat().st_size > 3
    assert secret.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["findings.json", "outside", "report.html", "text"]


def test_the_default_report_of_a_run_does_not_leave_it(secret: Path, tmp_path: Path) -> None:
    hostile(secret).save(tmp_path / "run")
    (tmp_path / "run" / "report.html").symlink_to(secret)
    assert main(["report", str(tmp_path / "run")]) == 0
    assert secret.read_text().startswith(SECRET) and not (tmp_path / "run" / "report.html").is_symlink()


def test_a_log_is_not_added_to_through_a_link(secret: Path, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(secret)
    with pytest.raises(OSError):
        add_to(tmp_path / "log")
    os.close(add_to(tmp_path / "new"))
    assert (tmp_path / "new").is_file() and secret.read_text().startswith(SECRET)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o640)
    with pytest.raises(ZeroDivisionError), replacing(file) as part:
        part.write_text("half of it")
        1 / 0  # noqa: B018
    assert file.read_text() == "old" and [*tmp_path.iterdir()] == [file]
    replace_text(file, "new")
    assert file.read_text() == "new" and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [*tmp_path.iterdir()] == [file]


def test_streams_are_written_to_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    replace_text("/dev/stdout", "to a stream\n")
    assert capfd.readouterr().out.endswith("to a stream\n")
    assert is_stream("/dev/stdout") and is_stream("/dev/fd/1") and is_stream("/dev/null")
    assert not is_stream(tmp_path / "new") and not is_stream(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert is_stream(tmp_path / "pipe")


# A folder that cannot be written to, or is gone


def killed(folder: Path) -> None:
    """A run whose last steps are in SQLite's log: that of a process that was killed."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from backprobe.records import Step\n"
        "from backprobe.store.writer import Writer\n"
        "writer = Writer(Path(sys.argv[1]), {'started': 0.0, 'script': 'train.py'})\n"
        "for step in range(3):\n"
        "    writer.step(Step(step, 0.1, 1.0 + step, ()), 0, lambda: ())\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], env=ENV, timeout=600)
    assert (folder / f"{FILE}-wal").stat().st_size


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make SQLite fail to create a shared file beside a run, as in a read-only folder; root can write anywhere."""
    before = reader.connect

    def connect(file: Path, unchanging: bool = False) -> sqlite3.Connection:
        if not unchanging:
            raise sqlite3.OperationalError("unable to open database file")
        return before(file, unchanging)

    monkeypatch.setattr(reader, "connect", connect)


def test_a_run_in_a_folder_that_cannot_be_written_to_is_read(no_room: None, tmp_path: Path) -> None:
    hostile(Path("/x")).save(tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    trace = backprobe.load_run(tmp_path / "run")
    assert [step.record.loss for step in trace.steps] == [1.0] and len(trace.findings) == 1
    trace.close()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_steps_in_the_log_of_such_a_run_are_read(no_room: None, tmp_path: Path) -> None:
    killed(tmp_path / "run")
    before = {path.name: path.stat().st_size for path in (tmp_path / "run").iterdir()}
    trace = backprobe.load_run(tmp_path / "run")
    assert [step.record.loss for step in trace.steps] == [1.0, 2.0, 3.0] and not trace.over
    assert trace.steps.folder == tmp_path / "run"  # type: ignore[attr-defined]
    assert {path.name: path.stat().st_size for path in (tmp_path / "run").iterdir()} == before
    trace.close()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write to any folder")
def test_such_a_folder_as_it_is_on_disk(tmp_path: Path) -> None:
    killed(tmp_path / "run")
    (tmp_path / "run" / f"{FILE}-shm").unlink(missing_ok=True)
    (tmp_path / "run").chmod(0o500)
    try:
        assert len(backprobe.load_run(tmp_path / "run").steps) == 3
    finally:
        (tmp_path / "run").chmod(0o700)


@pytest.mark.parametrize(
    "words",
    ["unable to open database file", "attempt to write a readonly database", "disk I/O error"],
)
def test_what_sqlite_says_without_locks_or_room(words: str) -> None:
    assert needs_room(sqlite3.OperationalError(words))
    assert not needs_room(sqlite3.OperationalError("database is locked"))
    assert not needs_room(sqlite3.DatabaseError("file is not a database"))


def test_a_folder_is_the_lock_where_the_file_system_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    order: list[str] = []

    def second() -> None:
        with locked(tmp_path):
            order.append("second")

    with locked(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and not (tmp_path / ".locked").exists()
    monkeypatch.setattr("backprobe.store.parts.STALE_LOCK_S", 0.0)
    (tmp_path / ".locked").mkdir()  # of a process that was killed
    with locked(tmp_path):
        pass


TRAIN = """\
import sys, torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    model(torch.ones(2, 3)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 5 and len(sys.argv) > 1:
        import shutil; shutil.rmtree(sys.argv[1])
print("to its end")
"""


def watched(folder: Path, stub: str, *options: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run ``backprobe run`` on ``TRAIN`` after the code in `stub`, which breaks something."""
    (folder / "train.py").write_text(TRAIN)
    command = ["run", "--budget", "none", *options, "train.py", *args]
    code = f"import sys\n{stub}\nfrom backprobe.commands import main\nsys.exit(main({command!r}))"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=ENV, capture_output=True, text=True, timeout=600
    )


def check_goes_on(done: subprocess.CompletedProcess[str], why: str) -> None:
    said = " ".join(done.stderr.split())
    assert done.returncode == 0 and done.stdout == "to its end\n" and "Traceback" not in said, said
    assert "Kept in" not in said, said
    assert re.search(f"Not seen: 1 kept run .not kept.*{why}", said), said


def test_an_unwritable_run_still_starts_the_script_and_is_reported(tmp_path: Path) -> None:
    stub = (
        "import sqlite3\n"
        "def connect(*args, **more): raise sqlite3.OperationalError('disk I/O error')\n"
        "sqlite3.connect = connect"
    )
    done = watched(tmp_path, stub, "--out", "run")
    check_goes_on(done, "cannot write a run to .*disk I/O error")
    assert "backprobe: the run is not kept: " in done.stderr


def test_a_removed_folder_is_reported(tmp_path: Path) -> None:
    done = watched(tmp_path, "", "--out", "run", args=("run",))
    check_goes_on(done, "was removed while the script ran")
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    stub = (
        "from backprobe.store.writer import Writer\n"
        "import sqlite3\n"
        "before = Writer.step\n"
        "def step(self, step, *rest):\n"
        "    if step.index == 4: raise sqlite3.OperationalError('database or disk is full')\n"
        "    before(self, step, *rest)\n"
        "Writer.step = step"
    )
    done = watched(tmp_path, stub, "--out", "run")
    check_goes_on(done, "from step 4 on: OperationalError: database or disk is full")
    assert "What was kept before that is in run" in done.stderr
    assert len(backprobe.load_run(tmp_path / "run").steps) == 4


def test_findings_that_cannot_be_written_take_nothing_else(tmp_path: Path) -> None:
    done = watched(tmp_path, "", "--no-keep", "--findings", "/dev/full")
    assert done.stdout == "to its end\n" and done.returncode == 2
    assert "cannot write the findings to /dev/full: No space left" in done.stderr and "12 steps" in done.stderr.replace(
        "\N{NO-BREAK SPACE}", " "
    )
