"""Scripts of several processes for tests, and a run of one under the command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: What ranks do: two steps, what goes wrong in rank 1, two more.
RANKS = """
import os, signal, sys, time
import torch, torch.distributed as dist
from torch import nn

def train(steps, bad=None):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 3)).square().mean()
        if step == bad:
            loss = (0 * loss).log()  # NAN
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()

def work(rank=None, store=None, how=None):
    torch.set_num_threads(1)
    if store is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    rank, how = dist.get_rank(), how or sys.argv[-1]
    train(3, 1 if how == "nan" and rank == 1 else None)
    if rank == 1:
        if how == "raise":
            raise ValueError("bad batch")  # RAISED
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            sys.exit(7)
    train(2)
    dist.destroy_process_group()
"""
#: One write a rank, so that lines of ranks that end together are not mixed where Python does not buffer its output.
TORCHRUN = (
    RANKS
    + """work()
left = sorted(k for k in os.environ if "BACKPROBE_JOB" in k)
os.write(1, f"done {left}\\n".encode())
"""
)
MULTIPROCESSING = (
    RANKS
    + """
if __name__ == "__main__":
    import torch.multiprocessing as mp
    mp.start_processes(work, (sys.argv[1], sys.argv[-1]), nprocs=2, start_method=sys.argv[2])
"""
)
#: Each process is made by a line of the script.
FORKED = (
    RANKS
    + """
if __name__ == "__main__":
    pids = []
    for number in range(2):
        pid = os.fork()
        if pid == 0:
            if sys.argv[-1] == "leave" and number == 1:
                train = lambda steps, bad=None: os._exit(3)  # LEFT
            work(number, sys.argv[1])
            sys.exit(0)
        pids.append(pid)
    print("done", [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"""
)


def line_of(text: str, mark: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}"))


def ran(
    folder: Path, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with `command`; again where torch ended it when the process group went: a thread of gloo's can be left
    over then, alone too."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=600, env=env
        )
        if done.returncode != -signal.SIGABRT or "terminate called without an active exception" not in done.stderr:
            break
        shutil.rmtree(folder / "kept", ignore_errors=True)
    return done


def run(
    folder: Path, script: str, *options: str, launcher: Sequence[str] = (), how: Sequence[str] = ()
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """`script` under the command: what it did, and its findings file."""
    (folder / "train.py").write_text(textwrap.dedent(script))
    command = ["-m", "backprobe", "run", "--findings", "found.json", *options, *launcher, "train.py", *how]
    done = ran(folder, command)
    return done, json.loads((folder / "found.json").read_text())
