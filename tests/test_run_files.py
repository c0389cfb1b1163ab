"""The files of a run: what a run names is never opened, and what is written never goes through a link."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import backprobe
from backprobe.commands import main
from backprobe.commands.files import write_findings
from backprobe.errors import BackprobeError
from backprobe.files import add_to, inside, is_stream, replace_text, replacing
from backprobe.records import Facts, Finding, FindingSite, KeptBatch, RankSeen, Site, Step
from backprobe.report.document import document
from backprobe.store import CODE, CRASH, FILE, SEEN
from backprobe.store.batches import file_of, read_batch
from backprobe.store.crashes import read_crash
from backprobe.store.job import open_job
from backprobe.store.parts import JOB, PARTS, claim, read_job, read_parts, unwatched, write_seen
from backprobe.traced import Steps, Trace, TracedStep
from backprobe.view.parts import report

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links and modes of POSIX")
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
    trace = backprobe.open(tmp_path / "run")
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
    files = [file for room in readers for file in (root / room).rglob("*.py")]
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
    assert SECRET not in str(report(open_job(tmp_path / "run"), tmp_path / "run", details=True))


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
        backprobe.open(tmp_path / "run")
    os.rename(tmp_path / "run", tmp_path / "moved")  # a link to the folder itself is fine
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert len(backprobe.open(tmp_path / "link").steps) == 1


def test_a_link_inside_of_the_run_is_read(tmp_path: Path) -> None:
    hostile(Path("/x")).save(tmp_path / "run")
    os.rename(tmp_path / "run" / FILE, tmp_path / "run" / "stored")
    (tmp_path / "run" / FILE).symlink_to("stored")
    assert len(backprobe.open(tmp_path / "run").steps) == 1


def test_a_pipe_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    part = claim(tmp_path / "run", "rank0")
    for file in (tmp_path / "run" / JOB, part / SEEN, part / CRASH, part / CODE, tmp_path / "run" / file_of(1)):
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
    loaded = backprobe.open(tmp_path / "run")
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


def test_what_is_written_takes_the_place_of_a_link(secret: Path, tmp_path: Path) -> None:
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
