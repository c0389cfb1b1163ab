"""Runs scripts with several ranks, alone and watched: each rank a forked copy of one process that has imported torch.

    python ranked.py JOBS      JOBS is a JSON list of {"folder", "script", "ranks", "watched", "environment"}

Each rank gets the variables that a launcher sets (RANK, WORLD_SIZE, MASTER_ADDR, ...), and leaves ``out-RANK``,
``err-RANK`` and ``code-RANK``; a watched job also leaves ``findings.json`` and the run ``run``. If a rank fails, the
others get a while to end.

torch can lock up when a process group goes, also alone: gloo's thread drops its last work, for which it wants the
interpreter's lock (each backward call leaves a Python object in what a collective keeps of its thread), while the
destructor that waits for that thread holds it. So where a rank does not end though none has failed, the job is run
again, with more patience; what locks up each time is left as it is. One script that was tried ten times each way locked
up four times alone and five watched.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from forked import import_what_scripts_need
from ports import reserved_port

#: Jobs at once.
AT_ONCE = 2
#: Seconds, by try, that the first rank has to end.
SECONDS = (200, 200, 300, 400, 600, 600)
#: Seconds that the others have to end after one has failed, until they are ended as launchers do, by SIGTERM; and then.
AFTER_A_FAILURE, AFTER_A_SIGNAL = 90, 600
#: Seconds, by try, that ranks have to end after one has ended well.
AFTER_AN_END = (60, 60, 60, 120, 300, 600)


class JobOutput:
    """The output, exit codes and findings of a job of several ranks."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.folder, self.ranks = folder, range(ranks)

    def _of(self, what: str) -> list[str]:
        return [(self.folder / f"{what}-{rank}").read_text() for rank in self.ranks]

    @property
    def codes(self) -> list[int]:
        return [int(code) for code in self._of("code")]

    @property
    def out(self) -> list[str]:
        return self._of("out")

    @property
    def err(self) -> list[str]:
        return self._of("err")

    @property
    def findings(self) -> list[dict[str, Any]]:
        return json.loads((self.folder / "findings.json").read_text())["findings"]


def run_ranks(folder: Path, jobs: Mapping[str, dict[str, Any]]) -> dict[str, JobOutput]:
    """Run `jobs`, name -> script and what else a job says, below `folder`."""
    listed = []
    for name, job in jobs.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        listed.append({"ranks": 2, "watched": True, "environment": {}, **job, "folder": str(folder / name)})
    (folder / "jobs.json").write_text(json.dumps(listed))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, folder / "jobs.json"], check=True, env=environment)
    return {name: JobOutput(folder / name, job["ranks"]) for name, job in zip(jobs, listed, strict=True)}


def _become(job: dict[str, Any], rank: int, port: int) -> None:
    """In the child: be a rank of the job."""
    os.setsid()
    folder = Path(job["folder"])
    world = str(job["ranks"])
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **job["environment"]})
    for number, name in ((1, f"out-{rank}"), (2, f"err-{rank}")):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    code = 1
    try:
        if job["watched"]:
            from backprobe.commands import main

            kept = ["--out", str(folder / "run"), "--findings", str(folder / "findings.json")]
            arguments = ["run", *kept, *job.get("options", ()), job["script"]]
            sys.argv[:] = ["backprobe", *arguments]
            code = main(arguments)
        else:
            sys.argv[:] = [job["script"]]
            runpy.run_path(job["script"], run_name="__main__")
            code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(job: dict[str, Any]) -> None:
    folder = Path(job["folder"])
    for seconds, patience in zip(SECONDS, AFTER_AN_END, strict=True):
        shutil.rmtree(folder)
        folder.mkdir()
        with reserved_port() as port:
            if not _stuck(job, port, seconds, patience):
                return


def _stuck(job: dict[str, Any], port: int, seconds: float, patience: float) -> bool:
    """Whether a rank had to be killed though none had ended badly."""
    ranks = {}
    for rank in range(job["ranks"]):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _become(job, rank, port)
        ranks[pid] = rank
    end, codes, killed, told = time.time() + seconds, set(), False, False
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            Path(job["folder"], f"code-{ranks.pop(pid)}").write_text(str(code))
            if not killed:
                codes.add(code)
            end = min(end, time.time() + (AFTER_A_FAILURE if any(codes) else patience))
        elif time.time() > end and any(codes) and not told:
            told, end = True, time.time() + AFTER_A_SIGNAL
            for child in ranks:
                os.killpg(child, signal.SIGTERM)
        elif time.time() > end:
            killed = True
            for child in ranks:
                os.killpg(child, signal.SIGKILL)
        else:
            time.sleep(0.01)
    return killed and codes <= {0}


def main(jobs: Sequence[dict[str, Any]]) -> None:
    import torch.distributed.algorithms.join
    import torch.distributed.optim
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel  # noqa: F401

    import_what_scripts_need()
    runners = []
    for share in range(AT_ONCE):  # ranks wait for one another, and for those that do not come, most of the time
        pid = os.fork()
        if pid == 0:
            _run_share(jobs[share::AT_ONCE])
        runners.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in runners] == [0] * AT_ONCE


def _run_share(jobs: Sequence[dict[str, Any]]) -> NoReturn:
    """In a child: run `jobs` one after another."""
    code = 1
    try:
        for job in jobs:
            _run(job)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
