"""Statistics, losses and findings in experiment trackers: what their own readers read is what the run's store has, and
whatever becomes of a tracker, the script runs as alone."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from case_sampling import sample_cases

import backprobe
from backprobe.commands import main
from backprobe.records import Measured
from backprobe.tracking import link as links
from backprobe.tracking import space
from backprobe.tracking import tensorboard as of_tensorboard
from backprobe.tracking.alerts import Alert
from backprobe.tracking.numbers import LIMIT, Chosen
from backprobe.tracking.outbox import Outbox

TRAIN = """
import random, sys
import torch
{before}
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(12):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 4)).square().mean()
    loss.backward()
    optimizer.step()
    {each}
{after}
print("end", loss.item(), torch.rand(1).item(), random.Random(0).random())
print([p.detach().view(torch.int32).sum().item() for p in model.parameters()])
"""
#: Nothing wrong in it, and everything: the weights become NaN in step 7.
PLAIN = TRAIN.format(before="", each="", after="")
BAD = TRAIN.format(before="", each="if step == 7: model[0].weight.data[0, 0] = float('nan')", after="sys.exit(3)")


def python(folder: Path, *arguments: str, site: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")]))
    taken = {name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "TRACKIO_"))}
    environment = {name: value for name, value in os.environ.items() if name not in taken}
    environment |= {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TRACKIO_DIR": str(folder / "trackio")}
    environment |= {"BACKPROBE_WAIT": "300", "WANDB_SILENT": "true", **more}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=900)


def run(folder: Path, script: str, *options: str, site: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    return python(folder, "-m", "backprobe", "run", "--out", "kept", *options, "train.py", site=site, **more)


Read = dict[str, dict[int, float]]


def of_event_files(folder: Path) -> tuple[Read, list[str]]:
    """Read a folder with TensorBoard's own reader; return the curves by tag, and the texts."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    curves = {tag: {one.step: one.value for one in read.Scalars(tag)} for tag in read.Tags()["scalars"]}
    texts = [
        text.decode()
        for tag in read.Tags()["tensors"]
        for one in read.Tensors(tag)
        for text in one.tensor_proto.string_val
    ]
    return curves, texts


def rows_of_wandb(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and alerts in the file of an offline run: blocks of 32 KiB with records in one part or several."""
    from wandb.proto import wandb_internal_pb2 as pb

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    raw, at, held = path.read_bytes(), 7, b""
    rows, alerts = [], []
    while at + 7 <= len(raw):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", raw, at)
        held += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            record, held = pb.Record.FromString(held), b""
            if record.HasField("history"):
                items = record.history.item
                rows.append({one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items})
            elif record.HasField("alert"):
                alerts.append(f"{record.alert.level} {record.alert.title} {record.alert.text}")
    return rows, alerts


def by_step(rows: list[dict[str, Any]], step: str) -> Read:
    found: Read = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith("backprobe/") and name != "backprobe/step":
                assert row[step] not in found.setdefault(name, {})
                found[name][row[step]] = value
    return found


def of_wandb(folder: Path) -> tuple[Read, list[str]]:
    rows, alerts = rows_of_wandb(folder)
    return by_step(rows, "backprobe/step"), alerts


def of_mlflow(folder: Path, uri: str = "mlflow.db") -> tuple[Read, list[str]]:
    """In a process of its own: it warns."""
    read = (
        "import json, mlflow\n"
        f"client = mlflow.MlflowClient('sqlite:///{uri}')\n"
        "(run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])\n"
        "curves = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}\n"
        "curves = {name: [(one.step, one.value) for one in curve] for name, curve in curves.items()}\n"
        "print(json.dumps([run.info.status, curves, run.data.tags]))"
    )
    done = python(folder, "-c", read)
    assert done.returncode == 0, done.stderr
    status, curves, tags = json.loads(done.stdout)
    assert status == "FINISHED"
    said = [f"{name} {text}" for name, text in tags.items() if name.startswith(("backprobe.", "mlflow.note"))]
    return {name: dict(curve) for name, curve in curves.items()}, said


def of_trackio(folder: Path, project: str = "backprobe", name: str = "kept") -> tuple[Read, list[str]]:
    """Its reader looks for its folder when it is imported."""
    read = (
        "import json\nfrom trackio.sqlite_storage import SQLiteStorage as S\n"
        f"print(json.dumps([S.get_logs({project!r}, {name!r}), S.get_alerts({project!r})]))"
    )
    done = python(folder, "-c", read)
    assert done.returncode == 0, done.stderr
    rows, alerts = json.loads(done.stdout)
    return by_step(rows, "step"), [f"{one['level']} {one['title']} {one['text']}" for one in alerts]


READERS = {
    "tensorboard": lambda folder: of_event_files(folder / "runs" / "kept"),
    "wandb": of_wandb,
    "mlflow": of_mlflow,
    "trackio": of_trackio,
}
#: Packages that each tracker needs to store runs locally.
NEEDS = {"mlflow": ("mlflow", "sqlalchemy", "alembic")}
TRACKERS = [*READERS]


def needs(tracker: str) -> None:
    for package in NEEDS.get(tracker, (tracker,)):
        if not __import__("importlib.util").util.find_spec(package):
            pytest.skip(f"{package} is not installed: pip install 'backprobe[trackers]'")


def stored(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Yield the name, step and value of each number that a tracker should have, from the stored run."""
    with closing(backprobe.load_run(folder / "kept")) as trace:
        for look in trace.statistics:
            by_quantity: dict[str, list[float]] = {}
            for name, value in zip(look.names, look.values, strict=True):
                if value == value and abs(value) != float("inf"):
                    quantity, _, of = name.partition("|")
                    by_quantity.setdefault(quantity, []).append(value)
                    yield f"backprobe/{quantity}/{of}", look.step, value
            for quantity, values in by_quantity.items():
                yield f"backprobe/{quantity}/max", look.step, max(values)
                if len(values) > 1:
                    yield f"backprobe/{quantity}/min", look.step, min(values)
                    yield f"backprobe/{quantity}/median", look.step, statistics.median(values)
        for step in trace.steps:
            if step.loss is not None and step.loss == step.loss:
                yield "backprobe/loss", step.index, step.loss


def equal(read: Read, folder: Path) -> None:
    """`read` is what the store has, to the digits of single precision that some trackers keep."""
    known: Read = {}
    for name, step, value in stored(folder):
        known.setdefault(name, {})[step] = value
    assert len(known) > 80
    norms = read.pop("backprobe/grad_norm_before_clip")
    assert norms and set(norms) <= set(range(12))
    read.pop("backprobe/nonfinite", None)
    assert read.keys() == known.keys()
    for name, curve in known.items():
        assert read[name].keys() == curve.keys(), name
        for step, value in curve.items():
            assert read[name][step] == pytest.approx(value, rel=1e-7, abs=1e-38), (name, step)


@pytest.mark.parametrize("tracker", sample_cases(TRACKERS, 2))
def test_a_tracker_has_the_numbers_of_the_store(tracker: str, tmp_path: Path) -> None:
    needs(tracker)
    (tmp_path / "alone.py").write_text(BAD)
    alone = python(tmp_path, "alone.py")
    done = run(tmp_path, BAD, "--log-to", tracker, "--layer-stats", "2")
    assert (done.returncode, done.stdout) == (3, alone.stdout) == (alone.returncode, done.stdout), done.stderr
    assert f"Written to {tracker}: " in done.stderr and "Not seen" not in done.stderr, done.stderr
    read, said = READERS[tracker](tmp_path)
    equal(read, tmp_path)
    found = json.loads((tmp_path / "kept" / "findings.json").read_text())["findings"]
    assert found
    for finding in found:
        mine = [text for text in said if finding["title"] in text]
        assert mine, (finding["title"], said)
    assert any("backprobe show kept" in text for text in said)


def test_the_gradient_norm_of_a_step_is_that_of_the_run(tmp_path: Path) -> None:
    needs("tensorboard")
    norms = "norms.append(sum(p.grad.double().square().sum() for p in model.parameters()).sqrt().item())"
    script = TRAIN.format(before="norms = []", each=norms, after="print(norms)")
    done = run(tmp_path, script, "--log-to", "tensorboard")
    (curves, _) = of_event_files(tmp_path / "runs" / "kept")
    norms = json.loads(done.stdout.splitlines()[0])
    assert curves["backprobe/grad_norm_before_clip"] == {
        step: pytest.approx(norm, rel=1e-5) for step, norm in enumerate(norms)
    }


# Runs that the script has open


def test_auto_writes_beside_the_scripts_event_file(tmp_path: Path) -> None:
    needs("tensorboard")
    before = "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter('mine')"
    script = TRAIN.format(before=before, each="writer.add_scalar('loss', loss.item(), 10 * step)", after="")
    done = run(tmp_path, script, "--log-to", "auto", "--layer-stats", "2")
    assert f"Written to tensorboard: {tmp_path / 'mine' / 'backprobe'}" in done.stderr, done.stderr
    mine, _ = of_event_files(tmp_path / "mine")
    assert mine.keys() == {"loss"} and [*mine["loss"]] == [10 * step for step in range(12)]
    equal(of_event_files(tmp_path / "mine" / "backprobe")[0], tmp_path)


def test_auto_adds_to_the_rows_of_the_scripts_wandb_run(tmp_path: Path) -> None:
    """The script's own rows and steps are as alone; each of ours is of one look, said in it."""
    needs("wandb")
    before = "import wandb\nwandb.init(mode='offline', project='mine')"
    script = TRAIN.format(before=before, each="wandb.log({'loss': loss.item()}, step=3 * step)", after="")
    folders = [tmp_path / name for name in ("alone", "watched")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "train.py").write_text(script)
    alone = python(folders[0], "train.py")
    done = run(folders[1], script, "--log-to", "auto", "--layer-stats", "2")
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    assert "Written to wandb: the script's run" in done.stderr, done.stderr
    theirs, ours = ([row for row in rows_of_wandb(folder)[0] if "loss" in row] for folder in folders)
    own = [(row["_step"], row["loss"]) for row in theirs]
    assert own == [(row["_step"], row["loss"]) for row in ours] and len(own) == 12
    known: Read = {}
    for name, step, value in stored(folders[1]):
        known.setdefault(name, {})[step] = value
    rows = [row for row in rows_of_wandb(folders[1])[0] if "backprobe/step" in row]
    assert rows
    for row in rows:
        for name, value in row.items():
            if name in known:  # where several looks meet in a row, what only an earlier one has stays
                at = row["backprobe/step"]
                assert value in ([known[name][at]] if at in known[name] else known[name].values()), (name, at)
    assert {name for row in rows for name in row if name in known} == known.keys()


@pytest.mark.slow
def test_auto_writes_to_the_active_mlflow_run(tmp_path: Path) -> None:
    needs("mlflow")
    before = "import mlflow\nmlflow.set_tracking_uri('sqlite:///mine.db')\nmlflow.start_run(description='mine')"
    script = TRAIN.format(before=before, each="mlflow.log_metric('loss', loss.item(), step=10 * step)", after="")
    done = run(tmp_path, script, "--log-to", "auto", "--layer-stats", "2")
    assert "Written to mlflow: run " in done.stderr, done.stderr
    read, _ = of_mlflow(tmp_path, "mine.db")
    assert [*read.pop("loss")] == [10 * step for step in range(12)]
    equal(read, tmp_path)


@pytest.mark.slow
def test_auto_writes_to_the_trackio_run(tmp_path: Path) -> None:
    needs("trackio")
    before = "import trackio\ntrackio.init(project='mine', name='me', auto_log_cpu=False, config={'lr': 1})"
    script = TRAIN.format(before=before, each="trackio.log({'loss': loss.item()})", after="")
    done = run(tmp_path, script, "--log-to", "auto", "--layer-stats", "2")
    assert "Written to trackio: run me of project mine" in done.stderr, done.stderr
    equal(of_trackio(tmp_path, "mine", "me")[0], tmp_path)
    read = (
        "import json\nfrom trackio.sqlite_storage import SQLiteStorage as S\n"
        "print(json.dumps([S.get_logs('mine', 'me'), S.get_run_config('mine', 'me')]))"
    )
    rows, config = json.loads(python(tmp_path, "-c", read).stdout)
    assert [row["step"] for row in rows if "loss" in row] == [*range(12)] and config["lr"] == 1


def test_auto_imports_no_tracker(tmp_path: Path) -> None:
    names = ("tensorboard", "wandb", "mlflow", "trackio", "socket.mine")
    script = TRAIN.format(before="", each="", after=f"print([name for name in {names} if name in sys.modules])")
    done = run(tmp_path, script, "--log-to", "auto")
    assert done.stdout.splitlines()[0] == "[]" and "Written" not in done.stderr and "Not seen" not in done.stderr


LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, **more}) for more in PROCESSES]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.mark.parametrize(
    ("processes", "runs"),
    [([{}], ["kept-*"]), ([{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)], ["kept"])],
    ids=["one", "ranks"],
)
def test_a_process_that_a_launcher_starts_writes(
    processes: list[dict[str, str]], runs: list[str], tmp_path: Path
) -> None:
    """The launcher itself trains nothing, and writes nothing; of ranks the first one does."""
    needs("tensorboard")
    (tmp_path / "train.py").write_text(PLAIN)
    (tmp_path / "launcher.py").write_text(LAUNCHER.replace("PROCESSES", repr(processes)))
    done = python(tmp_path, "-m", "backprobe", "run", "--out", "kept", "--log-to", "tensorboard", "launcher.py")
    assert done.returncode == 0, done.stderr
    folders = [*(tmp_path / "runs").iterdir()]
    assert [folder for pattern in runs for folder in folders if folder.match(pattern)] == folders, folders
    curves, _ = of_event_files(folders[0])
    assert [*curves["backprobe/loss"]] == [*range(12)] and "backprobe/update_ratio/0.weight" in curves


# Trackers that fail

#: Packages that stand for a tracker: what goes wrong where.
FAKE = """
import errno, os, signal, time
class Run:
    class settings:
        sync_dir = "somewhere"
    def define_metric(self, *a, **k): pass
    def alert(self, **k): pass
    def finish(self):
        {finish}
    def log(self, row):
        {log}
def Settings(**k): pass
def init(**k):
    {init}
    return Run()
"""
FAILURES = {
    "raises at the start": ({"init": "raise RuntimeError('no server\\nat all')"}, "RuntimeError: no server at all"),
    "raises SystemExit": ({"init": "raise SystemExit(9)"}, "SystemExit: 9"),
    "a full disk": ({"log": "raise OSError(errno.ENOSPC, 'No space left on device')"}, "No space left on device"),
    "a folder that is read only": ({"init": "raise OSError(errno.EROFS, 'Read-only file system')"}, "Read-only file"),
    "killed": ({"log": "os.kill(os.getpid(), signal.SIGKILL)"}, "its process is gone"),
    "raises at the end": ({"finish": "raise ValueError('not synced')"}, "ValueError: not synced"),
    "hangs at the start": ({"init": "time.sleep(1e6)"}, "it had not written all of it when"),
    "hangs in a call": ({"log": "time.sleep(1e6)"}, "it had not written all of it when"),
    "hangs at the end": ({"finish": "time.sleep(1e6)"}, "it had not written all of it when"),
}


@pytest.mark.parametrize("how", sample_cases(FAILURES))
def test_a_tracker_that_fails_does_no_harm_and_is_reported_once(how: str, tmp_path: Path) -> None:
    code, why = FAILURES[how]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "wandb.py").write_text(
        FAKE.format(**({"init": "pass", "log": "pass", "finish": "pass"} | code))
    )
    (tmp_path / "alone.py").write_text(BAD)
    alone = python(tmp_path, "alone.py")
    wait = "2" if "hangs" in how else "300"
    done = run(tmp_path, BAD, "--log-to", "wandb", site=str(tmp_path / "site"), BACKPROBE_WAIT=wait)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout), done.stderr
    said = " ".join(done.stderr.split())
    assert said.count("tracker wandb") == 1 and why in said, done.stderr
    kinds = [one["kind"] for one in json.loads((tmp_path / "kept" / "findings.json").read_text())["findings"]]
    assert kinds  # what is found is found all the same


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    needs("tensorboard")
    (tmp_path / "runs").write_text("no folder")
    done = run(tmp_path, PLAIN, "--log-to", "tensorboard")
    assert done.returncode == 0
    assert "FileExistsError" in done.stderr or "NotADirectoryError" in done.stderr, done.stderr


def test_a_full_disk_under_an_event_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tensorboard")
    full = lambda path, mode: open("/dev/full", mode)  # noqa: E731, SIM115  it stands for open
    monkeypatch.setattr(of_tensorboard, "open", full, raising=False)
    writer = of_tensorboard.TensorBoard()
    writer.begin({"open": str(tmp_path)})
    with pytest.raises(OSError, match="No space left"):
        writer.rows([(0, {"backprobe/loss": 1.0})])
    with pytest.raises(OSError, match="No space left"):
        writer.close()


def test_a_full_disk_that_a_package_does_not_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space.check(str(tmp_path))
    usage = type(shutil.disk_usage(tmp_path))(1 << 20, 1 << 20, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(OSError, match="No space left on device; what was written last may be missing"):
        space.check(str(tmp_path))


def test_a_tracker_that_takes_nothing_is_never_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are buffered up to a limit, and dropped ones are counted."""
    (tmp_path / "wandb.py").write_text(FAKE.format(init="time.sleep(1e6)", log="pass", finish="pass"))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.path.insert(0, "")  # the first is that of a script
    monkeypatch.setattr(links, "WAITING", 1 << 20)
    link = links.Link("wandb")
    try:
        link.open({"folder": str(tmp_path), "name": "n", "script": "s", "run": "", "open": None})
        names = tuple(f"grad_norm|layer{i}.weight" for i in range(1000))
        for step in range(1000):
            link.look(Measured(step, names, array("d", range(1000))))
        assert link.dropped > 500 and not link.failed
        link.last()
        link.close(0.2)
        (failed, dropped) = link.unseen
        assert "it had not written all of it when 0 s had passed" in failed.note
        assert dropped.note.startswith(f"{link.dropped:,} looks and steps") and not dropped.hides
    finally:
        sys.path.remove("")


class OfScript:
    """Stands for a W&B run that a script has open."""

    def __init__(self, how: str) -> None:
        self.how, self.rows, self.said = how, [], []
        self._is_finished = how == "finished"

    def log(self, row: dict[str, float], commit: bool) -> None:
        assert commit is False
        if self.how == "raises":
            raise OSError("no server")
        if self.how == "finished":
            raise RuntimeError("Run is finished")
        if self.how == "hangs":
            threading.Event().wait()
        self.rows.append(row)

    def alert(self, **what: Any) -> None:
        self.said.append(what)


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ("works", ""),
        ("raises", "it failed, and was left out: OSError: no server"),
        ("hangs", "it failed, and was left out: it had not written all of it when 0 s had passed after the end"),
        ("finished", "the script had closed its run: what came after that, or was found at the end, is not in it"),
    ],
)
def test_a_failed_tracker_run_of_the_script_is_reported_once(how: str, note: str) -> None:
    script = OfScript(how)
    box = Outbox(script, Chosen())
    for step in range(3):
        box.look(measured(step, 2))
        box.step(step, {"backprobe/loss": 1.0})
    box.alert(Alert("kind", "title", "text", "WARN", 2))
    box.last()
    box.close(0.1 if how == "hangs" else 300)
    assert [one.note for one in box.unseen] == [note] * bool(note)
    if how == "works":
        assert [row["backprobe/step"] for row in script.rows][-1] == 2
        assert {row["backprobe/step"] for row in script.rows} == {0, 1, 2}
        assert script.said == [{"title": "title", "text": "kind: text", "level": "WARN", "wait_duration": 0}]


ODD = """
import os, signal, threading
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
try:
    os.wait()
except ChildProcessError:
    print("no children")
print(threading.active_count())
"""


def test_the_script_sees_nothing_of_it(tmp_path: Path) -> None:
    """No child to wait for, no thread more; a broken pipe that would end the script does not; a forked child writes
    nothing."""
    fork = "if step == 5 and os.fork() == 0: model(torch.ones(2, 4)).sum().backward(); os._exit(0)\n"
    fork += "    if step == 5: os.wait()"
    script = TRAIN.format(before=ODD, each=fork, after="")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "wandb.py").write_text(
        FAKE.format(init="pass", log="open('rows', 'a').write(repr(row) + '\\n')", finish="pass")
    )
    alone = run(tmp_path, script, "--layer-stats", "10")
    (tmp_path / "kept").rename(tmp_path / "first")
    done = run(tmp_path, script, "--log-to", "wandb,auto", site=str(tmp_path / "site"))
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    rows = (tmp_path / "rows").read_text().splitlines()
    steps = [eval(row)["backprobe/step"] for row in rows]
    assert sorted({*steps}) == [*range(12)] and steps == sorted(steps)
    gone = TRAIN.format(before=ODD, each="", after="")
    (tmp_path / "site" / "wandb.py").write_text(FAKE.format(init="os._exit(1)", log="pass", finish="pass"))
    (tmp_path / "kept").rename(tmp_path / "second")
    done = run(tmp_path, gone, "--log-to", "wandb", site=str(tmp_path / "site"))
    assert done.returncode == 0 and "its process is gone" in " ".join(done.stderr.split()), done.stderr


# What is asked for


def test_a_missing_tracker_is_reported_before_the_script_starts(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("open('started', 'w')")
    Path("wandb").mkdir()  # what wandb leaves in the working folder is no package
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["run", "--log-to", "wandb", "train.py"]) == 2
    assert capsys.readouterr().err == "backprobe: --log-to wandb needs the package wandb: pip install wandb\n"
    assert main(["run", "--log-to", "wandb,aim", "train.py"]) == 2
    names = "'tensorboard', 'wandb', 'mlflow', 'trackio', 'auto'"
    assert f"invalid choice: 'aim' (choose from {names})" in capsys.readouterr().err
    assert main(["run", "--metrics", "lr/*", "train.py"]) == 2
    assert "say which, with --log-to" in capsys.readouterr().err
    assert not Path("started").exists()


def measured(step: int, layers: int, quantities: tuple[str, ...] = ("grad_norm", "weight_norm")) -> Measured:
    names = [f"{q}|h.{i}.{p}" for q in quantities for i in range(layers) for p in ("weight", "bias")]
    names += [f"activation_rms|h.{i}" for i in range(layers)] + ["lr|AdamW"]
    return Measured(step, tuple(names), array("d", range(len(names))))


def test_curves_are_bounded_and_the_same_in_each_look() -> None:
    chosen = Chosen()
    first, second = chosen.of(measured(0, 500)), chosen.of(measured(10, 500))
    assert first.keys() == second.keys() and len(first) <= LIMIT
    layers = {name.split("/")[2].split(".")[1] for name in first if "/h." in name}
    assert layers == {str(i) for i in range(80)}  # whole ones, from the first on: 400 curves of 5 each
    assert all(f"backprobe/{q}/h.79.{p}" in first for q in ("grad_norm", "weight_norm") for p in ("weight", "bias"))
    assert first["backprobe/grad_norm/max"] == 999.0 and first["backprobe/grad_norm/median"] == 499.5
    assert chosen.left_out == 2501 - 400
    # What begins later takes what room there is, and nothing that was there goes.
    third = chosen.of(measured(20, 500, ("grad_norm", "weight_norm", "update_norm")))
    assert first.keys() <= third.keys() and len(third) <= LIMIT + 3


def test_all_curves_of_a_small_model() -> None:
    chosen = Chosen()
    found = chosen.of(measured(0, 3))
    assert len([name for name in found if "/h." in name]) == 15 and chosen.left_out == 0


def test_curves_by_name_have_no_bound() -> None:
    chosen = Chosen(["grad_norm/*", "backprobe/weight_norm/h.7.*"])
    found = chosen.of(measured(0, 500))
    named = [name for name in found if "/h." in name]
    assert len(named) == 1002 and "backprobe/weight_norm/h.7.bias" in named
    assert "backprobe/activation_rms/max" in found


def test_numbers_that_are_not_finite_are_counted_and_their_curve_goes_on() -> None:
    chosen = Chosen()
    nan = chosen.of(Measured(0, ("grad_norm|a.w", "grad_norm|b.w"), array("d", [float("nan"), 2.0])))
    assert nan == {"backprobe/grad_norm/b.w": 2.0, "backprobe/grad_norm/max": 2.0, "backprobe/nonfinite": 1.0}
    assert "backprobe/grad_norm/a.w" in chosen.of(Measured(1, ("grad_norm|a.w",), array("d", [1.0])))
