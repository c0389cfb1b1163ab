"""Runs `backprobe` command lines, each in a forked copy of one process that has imported torch already.

    python forked.py JOBS      JOBS is a JSON list of {"folder": ..., "arguments": [...]}

Each job runs in its folder and leaves ``out``, ``err`` and ``code`` there. Importing torch and what optimizers import
(``torch._dynamo``) takes longer than most scripts.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

AT_ONCE = 2
#: How long a job may take, by try.
SECONDS = (300, 600)
#: What scripts that mention a framework import of it. Other scripts are run before, in a process without it.
FRAMEWORKS = {
    "transformers": "from transformers import BertModel, GPT2LMHeadModel, LlamaModel, Trainer, ViTModel",
    "lightning": "import lightning.pytorch",
}


def found_in(
    folder: Path, scripts: Mapping[str, tuple[str, Sequence[str]]]
) -> Callable[[str], tuple[int, list[dict[str, Any]], str]]:
    """Run `scripts`, name -> path and options, below `folder`. What is returned gives for a name the exit code, the
    findings and the report."""
    jobs = []
    for name, (path, options) in scripts.items():
        (folder / name).mkdir(exist_ok=True)
        arguments = ["run", "--no-keep", *options, "--findings", "findings.json", path]
        jobs.append({"folder": str(folder / name), "arguments": arguments})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, folder / "jobs.json"], check=True, env=environment)

    def of(name: str) -> tuple[int, list[dict[str, Any]], str]:
        own = folder / name
        report = (own / "err").read_text()
        assert (own / "findings.json").exists(), report
        return int((own / "code").read_text()), json.loads((own / "findings.json").read_text())["findings"], report

    return of


def run(job: dict) -> None:
    """In the child: become what the command line would be."""
    os.setsid()
    os.chdir(job["folder"])
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    from backprobe.commands import main

    sys.argv[:] = ["backprobe", *job["arguments"]]
    code = 1
    try:
        code = main(job["arguments"])
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(running: dict[int, tuple[dict, float]]) -> dict | None:
    """Wait until one of `running` is over. Return it if it took too long and was ended."""
    ended: set[int] = set()
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            job, _ = running.pop(pid)
            Path(job["folder"], "code").write_text(str(os.waitstatus_to_exitcode(status)))
            return job if pid in ended else None
        for child, (job, begin) in running.items():
            if time.time() - begin > SECONDS[job.get("tries", 0)] and child not in ended:
                ended.add(child)
                os.killpg(child, signal.SIGKILL)
        time.sleep(0.01)


def import_what_scripts_need() -> None:
    """Import what nearly every job would import, before it is forked."""
    import sklearn.datasets
    import sklearn.model_selection  # noqa: F401
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.utils.checkpoint  # noqa: F401

    import backprobe.commands.run
    import backprobe.findings
    import backprobe.observe.alarm_dispatcher
    import backprobe.observe.overrides
    import backprobe.observe.processes.children
    import backprobe.observe.session
    import backprobe.observe.trackers
    import backprobe.view.terminal

    for found_by_folder in (backprobe.findings, backprobe.observe.trackers):
        for module in pkgutil.walk_packages(found_by_folder.__path__, f"{found_by_folder.__name__}."):
            if ".test_" not in module.name:
                importlib.import_module(module.name)


def run_all(jobs: Iterable[dict]) -> None:
    """Run jobs, and those again that took too long: torch may lock up when a process group goes (`ranked.py`)."""
    left = list(jobs)
    running: dict[int, tuple[dict, float]] = {}
    while left or running:
        while left and len(running) < AT_ONCE:
            job = left.pop(0)
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                run(job)
            running[pid] = (job, time.time())
        late = finish(running)
        if late is not None and late.get("tries", 0) + 1 < len(SECONDS):
            left.append({**late, "tries": late.get("tries", 0) + 1})


def main(jobs: list[dict]) -> None:
    """Run the jobs: last those whose scripts use a framework, after it was imported here."""
    import_what_scripts_need()
    left = {job["folder"]: job for job in jobs}
    texts = {job["folder"]: Path(job["folder"], job["arguments"][-1]).read_text() for job in jobs}
    run_all(left.pop(name) for name, text in texts.items() if not any(one in text for one in FRAMEWORKS))
    for framework, imports in FRAMEWORKS.items():
        mine = [left.pop(name) for name in list(left) if framework in texts[name]]
        if mine:
            exec(imports)
        run_all(mine)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
