"""Every way to start several processes gives one run, and the processes are as they would be alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launched import FORKED, MULTIPROCESSING, RANKS, TORCHRUN, line_of, ran, run
from ports import reserved_port

import backprobe

LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def ended(found: dict[str, Any]) -> list[tuple[int | None, str]]:
    """Ranks and how they ended, in the order of the ranks."""
    return [(one["rank"], one["ended"]) for one in found["ranks"] if one["rank"] is not None]


def outside(folder: Path, *how: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The command inside the launcher."""
    (folder / "train.py").write_text(TORCHRUN)
    inner = ["-m", "backprobe", "run", "--findings", "found.json", "--out", "kept", "train.py", *how]
    done = ran(folder, [*LAUNCH, *inner])
    return done, json.loads((folder / "found.json").read_text())


def inside(folder: Path, *how: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    return run(folder, TORCHRUN, "--out", "kept", launcher=LAUNCH, how=how)


def inside_no_python(folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Pass the complete command line of a rank to the launcher, with ``--no-python``."""
    return run(folder, TORCHRUN, "--out", "kept", launcher=[*LAUNCH, "--no-python", sys.executable])


@pytest.mark.slow
@pytest.mark.parametrize("launched", [inside, outside, inside_no_python])
def test_ranks_are_one_run(tmp_path: Path, launched: Any) -> None:
    done, found = launched(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done []\n" * 2
    assert ended(found) == [(0, "finished"), (1, "finished")] and found["findings"] == []
    assert done.stderr.count("No problems found.") == 1, done.stderr
    trace = backprobe.load_run(tmp_path / "kept")
    assert trace.findings == [] and len(trace.steps) == 5 and trace.coverage.gaps == ()
    assert sorted(p.name for p in (tmp_path / "kept" / "parts").iterdir()) == ["rank-0", "rank-1"]
    shown = ran(tmp_path, ["-m", "backprobe", "show", "kept"]).stdout
    assert [row.split()[0] for row in shown.splitlines() if row.endswith("finished")][:2] == ["0", "1"]
    other = ran(tmp_path, ["-m", "backprobe", "report", "--rank", "1", "kept"]).stdout
    assert "kept (rank 1 of " in other and (tmp_path / "kept" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("launched", [inside, outside])
@pytest.mark.parametrize(
    ("how", "says", "line"),
    [
        ("raise", "rank 1 ended with ValueError: bad batch", "RAISED"),
        ("kill", "rank 1 was killed: it ended without a word", None),
        ("nan", None, "NAN"),
    ],
)
def test_the_failed_rank_comes_first(
    tmp_path: Path, launched: Any, how: str, says: str | None, line: str | None
) -> None:
    done, found = launched(tmp_path, how)
    assert "No problems found." not in done.stderr and (how == "nan") == (done.returncode == 0)
    first = found["findings"][0]
    assert first["rank"] == 1
    if says is not None:
        assert [one["title"] for one in found["findings"]] == [says]
        assert dict(ended(found))[1] == ("killed" if how == "kill" else "failed")
    if line is not None:
        assert first["sites"][0]["line"] == line_of(TORCHRUN, line)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_ranks(tmp_path: Path, method: str) -> None:
    how = [str(tmp_path / "store"), method, "raise"]
    done, found = run(tmp_path, MULTIPROCESSING, "--out", "kept", how=how)
    assert done.returncode == 1 and "bad batch" in done.stderr
    assert [(one["kind"], one["rank"]) for one in found["findings"]] == [("rank-failed", 1)]
    assert found["findings"][0]["sites"][0]["line"] == line_of(MULTIPROCESSING, "RAISED")
    assert len(ended(found)) == 2
    assert backprobe.load_run(tmp_path / "kept").as_dict() == found


LIGHTNING = """
import hashlib, sys
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def training_step(self, batch, at):
        x, y = batch
        loss = (self.net(x) - y).square().mean()
        if sys.argv[2] == "nan" and at == 3 and self.global_rank == 1:
            loss = loss + (0 * loss).log()  # NAN
        return loss

    def on_train_end(self):
        bits = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in self.parameters())).hexdigest()
        with open(f"weights-{self.global_rank}", "w") as file:
            file.write(bits)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    x = torch.randn(64, 4)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    silent = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    L.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy=sys.argv[1], **silent).fit(Net(), data)
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn", "ddp_fork", "ddp_notebook"])
def test_ranks_of_lightning_are_one_run(tmp_path: Path, strategy: str) -> None:
    weights = [tmp_path / f"weights-{rank}" for rank in (0, 1)]
    (tmp_path / "train.py").write_text(LIGHTNING)
    alone = ran(tmp_path, ["train.py", strategy, "well"])
    assert alone.returncode == 0, alone.stderr
    bits = [path.read_text() for path in weights]
    for path in weights:
        path.unlink()
    done, found = run(tmp_path, LIGHTNING, how=[strategy, "well"])
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in weights] == bits
    assert [rank for rank, _ in ended(found)] == [0, 1] and found["findings"] == []
    done, found = run(tmp_path, LIGHTNING, how=[strategy, "nan"])
    first = found["findings"][0]
    assert (first["kind"], first["rank"], first["step"]) == ("nonfinite-forward", 1, 3), done.stderr
    assert first["sites"][0]["line"] == line_of(LIGHTNING, "NAN")


LEFT_ALONE = (
    RANKS
    + """
import subprocess
if "RANK" not in os.environ:
    os.environ.update(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"])
    subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": "1"})
work(how="well")
time.sleep(int(os.environ["RANK"]))
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "mark"), [("nan", "NAN"), ("raise", "RAISED"), ("leave", "LEFT")])
def test_a_process_that_the_script_forks_is_a_rank(tmp_path: Path, how: str, mark: str) -> None:
    done, found = run(tmp_path, FORKED, how=[str(tmp_path / "store"), how])
    codes = {"nan": [0, 0], "raise": [1, 1], "leave": [1, 3]}[how]
    assert (done.returncode, done.stdout) == (0, f"done {codes}\n"), done.stderr
    first = found["findings"][0]
    assert (first["rank"], first["sites"][0]["line"]) == (1, line_of(FORKED, mark)), first


@pytest.mark.slow
def test_a_rank_without_a_waiting_parent_ends(tmp_path: Path, monkeypatch) -> None:
    with reserved_port() as port:
        monkeypatch.setenv("PORT", str(port))
        done, found = run(tmp_path, LEFT_ALONE, "--out", "kept")
    assert [one["ended"] for one in found["ranks"]] == ["finished", "finished"]
    assert "No problems found." in done.stderr and found["findings"] == []


RAISES = """
import multiprocessing, os, sys
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional as F
import torch

def work(rank, how):
    if rank == 1:
        try:
            F.cross_entropy(torch.ones(2, 5, requires_grad=True), torch.zeros(2))
        except RuntimeError as error:
            raise ValueError("again") from error

@record
def recorded():
    dist.init_process_group("gloo")
    work(int(os.environ["RANK"]), "")

if __name__ == "__main__":
    how = sys.argv[1]
    if how == "record":
        recorded()
    elif how == "elastic":
        recorded.__wrapped__()
    elif how == "process":
        started = [multiprocessing.get_context("fork").Process(target=work, args=(rank, how)) for rank in range(2)]
        for one in started:
            one.start()
        for one in started:
            one.join()
    else:
        mp.start_processes(work, (how,), nprocs=2, start_method=how)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "spawn", "process", "elastic", "record"])
def test_the_output_of_an_error_in_a_child_is_unchanged(tmp_path: Path, how: str) -> None:
    (tmp_path / "train.py").write_text(RAISES)
    launcher = LAUNCH if how in ("elastic", "record") else ()
    alone = ran(tmp_path, [*launcher, "train.py", how])
    done = ran(tmp_path, ["-m", "backprobe", "run", "--quiet", "--no-keep", *launcher, "train.py", how])

    def tracebacks(text: str) -> list[str]:
        shown = sorted(line.split("]: ")[-1].strip() for line in text.splitlines() if "  File " in line)
        return [line for line in shown if "<frozen runpy>" not in line]  # of the launcher

    assert len(tracebacks(alone.stderr)) >= 4
    assert (tracebacks(done.stderr), done.returncode) == (tracebacks(alone.stderr), alone.returncode)


WORLD = """
import os, sys
import torch
from torch import nn
from_outside = sorted(name for name in sys.modules if name.startswith(("sitecustomize", "backprobe")))
print(sys.argv, [os.path.basename(p) for p in sys.path], os.environ.get("PYTHONPATH"), from_outside[:1])
print([name for name in os.environ if name in ("BACKPROBE_JOB", "BACKPROBE_PARENT_RANK")])
print([type(one) for one in sys.meta_path if type(one).__module__ != "backprobe.torch_internals.dynamo_activity"])
print(torch.__spec__.loader.__class__.__name__, torch.__loader__ is torch.__spec__.loader, torch.initial_seed() > 0)
loss = nn.Linear(2, 1)(torch.ones(3, 2)).sum()
loss.backward()
os.system(sys.executable + " -c 'import os; print(os.environ.get(\\"BACKPROBE_JOB\\"))'")
sys.exit(int(sys.argv[1]))
"""
STARTS = """
import os, subprocess, sys
env = {**os.environ, "PYTHONPATH": os.pathsep.join(["lib", os.environ.get("PYTHONPATH", "")])}
for given in (None, env):
    done = subprocess.run([sys.executable, "world.py", "5"], env=given, capture_output=True, text=True)
    print(done.stdout, done.stderr, done.returncode)
done = subprocess.run([sys.executable, "-m", "world", "0"], capture_output=True, text=True, env=env)
print(done.stdout, done.stderr, done.returncode, {k: v for k, v in os.environ.items() if "BACKPROBE_JOB" in k})
"""


@pytest.mark.slow
def test_a_child_finds_its_world_as_alone_and_is_watched(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text("import sys; sys.argv0 = 'the user\\'s own'; print('mine')\n")
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "train.py").write_text(STARTS)
    alone = ran(tmp_path, ["train.py"])
    done, found = run(tmp_path, STARTS, "--out", "kept")
    # What the child imports of ours stays loaded; that is all there is to see.
    assert done.stdout.replace("['backprobe']", "[]").replace("['sitecustomize']", "[]") == alone.stdout.replace(
        "['sitecustomize']", "[]"
    )
    assert alone.stdout.count("mine") == 4
    assert sorted(one["code"] for one in found["ranks"][1:]) == [0, 5, 5]
    assert all(one["backwards"] == 1 for one in found["ranks"][1:])
    assert (tmp_path / "kept" / "findings.json").exists()


@pytest.mark.slow
def test_a_child_that_cannot_be_watched_is_reported(tmp_path: Path) -> None:
    script = "import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-c', ''], check=True)\n"
    done, found = run(tmp_path, script, "--no-keep")
    assert [(one["what"], one["count"]) for one in found["unseen"]] == [("processes", 1)]
    assert "Not seen: 1 processes" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("go.sh", "#!/bin/sh\npython train.py\n", "go.sh is no Python script: have it start 'python -m backprobe run"),
        ("other", "#!/opt/other/bin/python3\n", "other is run by /opt/other/bin/python3, not by "),
        ("python3.9", "", "python3.9 is Python itself: type 'backprobe run SCRIPT'"),
        ("launch", "#!/usr/bin/env bash\n", "launch is no Python script"),
    ],
)
def test_a_launcher_that_cannot_be_followed_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    from backprobe.basics.errors import BackprobeError
    from backprobe.commands.found import file_of

    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackprobeError) as error:
        file_of(name)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_command_that_python_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from backprobe.commands.found import file_of

    for head in (f"#!{sys.executable}\n", f'#!/bin/sh\n\'\'\'exec\' "{sys.executable}" "$0" "$@"\n'):
        (tmp_path / "torchrun").write_text(head + "print()\n")
        (tmp_path / "torchrun").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert file_of("torchrun") == str(tmp_path / "torchrun")


TERMINATED = """
import os, signal, sys, time
import torch, torch.distributed as dist
from torch import nn
if sys.argv[1] == "own":
    signal.signal(signal.SIGTERM, lambda *given: sys.exit(9))
model = nn.Linear(2, 1)
(0 * model(torch.ones(3, 2))).log().sum().backward()
print("trained", flush=True)
if sys.argv[1] == "inside torch":
    dist.TCPStore("localhost", 0, is_master=True).get("never")
while True:
    time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("python", -15), ("inside torch", -15), ("own", 9)])
def test_results_are_written_on_sigterm(tmp_path: Path, how: str, code: int) -> None:
    (tmp_path / "train.py").write_text(TERMINATED)
    command = [sys.executable, "-m", "backprobe", "run", "--findings", "found.json", "--out", "kept", "train.py", how]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "trained\n"
        time.sleep(1.0)  # to be where it waits; sooner is as well
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert process.wait(600) == code
    found = json.loads((tmp_path / "found.json").read_text())
    (own,) = found["ranks"]
    assert (own["ended"], own["signal"]) == (("failed", None) if how == "own" else ("killed", 15))
    assert [one["kind"] for one in found["findings"]] == ["nonfinite-forward"]
    if how != "own":
        assert "the script was ended by SIGTERM" in " ".join(said.split())
    assert backprobe.load_run(tmp_path / "kept").as_dict() == found


def test_ranks_join_one_folder_and_a_later_job_does_not(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from backprobe.basics.errors import BackprobeError
    from backprobe.observe.processes.identity import identity
    from backprobe.observe.processes.rendezvous import join_run_folder

    def who(rank: int, **more: str) -> Any:
        return identity({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "8", "MASTER_PORT": "1", **more})

    made = []

    def new() -> Path:
        made.append(tmp_path / f"run-{len(made)}")
        made[-1].mkdir()
        return made[-1]

    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda rank: join_run_folder(who(rank), None, tmp_path, new), range(8)))
    assert len(made) == 1 and {folder for folder, _ in folders} == {made[0]}
    assert len({mine for _, mine in folders}) == 8
    # The same rank again is of another job; started again by its launcher it is of the same.
    again, _ = join_run_folder(who(3), None, tmp_path, new)
    assert again == made[1]
    folder, mine = join_run_folder(who(3, TORCHELASTIC_RESTART_COUNT="1"), made[0], tmp_path, new)
    assert (folder, mine.name) == (made[0], "rank-3-restart-1")
    with pytest.raises(BackprobeError, match="is not empty: a run needs a folder of its own"):
        join_run_folder(who(3), made[0], tmp_path, new)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(BackprobeError, match="is not empty"):
        join_run_folder(who(0), tmp_path / "full", tmp_path, new)


@pytest.mark.parametrize(
    ("environment", "parent", "rank"),
    [
        ({}, None, None),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, "", 3),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "3", None),  # handed on by the rank that started it
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None, None),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, None, 2),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, None, 1),
    ],
)
def test_who_a_process_is(environment: dict[str, str], parent: str | None, rank: int | None) -> None:
    from backprobe.observe.processes.identity import identity

    assert identity(environment, parent).rank == rank


def test_functions_that_start_processes_are_restored() -> None:
    import _posixsubprocess

    from backprobe.observe.processes.bootstrap.backprobe_following import ChildEnvironment

    names = (_posixsubprocess.fork_exec, getattr(subprocess, "_fork_exec", None), dict(os.environ))
    told = ChildEnvironment("{}")
    told.start()
    try:
        assert _posixsubprocess.fork_exec is not names[0]
        env = subprocess.run(["env"], capture_output=True, text=True).stdout
        given = subprocess.run(["env"], capture_output=True, text=True, env={"A": "1"}).stdout
    finally:
        told.stop()
    assert "BACKPROBE_JOB={}" in env and "BACKPROBE_JOB={}" in given and "A=1" in given
    assert (_posixsubprocess.fork_exec, getattr(subprocess, "_fork_exec", None), dict(os.environ)) == names
    assert "BACKPROBE_JOB" not in subprocess.run(["env"], capture_output=True, text=True).stdout
