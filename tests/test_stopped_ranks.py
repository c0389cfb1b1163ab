"""Alarms in processes that a script or a launcher starts: every process reacts to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ports import reserved_port

TRAIN = """
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def told(finding):
    with open(f"told-{dist.get_rank()}", "a") as file:
        print(finding.kind, file=file)


def work(rank, port, steps):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(8, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    torch.manual_seed(rank)
    file = os.open(f"steps-{rank}", os.O_CREAT | os.O_WRONLY)
    for step in range(steps):
        os.pwrite(file, f"{step + 1:6}".encode(), 0)  # whole at any time: a launcher ends others where one has stopped
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    STEPS = int(os.environ["STEPS"])
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), os.environ["MASTER_PORT"], STEPS)
    else:
        mp.spawn(work, (os.environ["PORT"], STEPS), 2)
"""
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WATCHED = ["-m", "backprobe", "run", "--findings", "found.json", "--out", "kept"]
COMMANDS = {
    "spawn": lambda options: [*WATCHED, *options, "train.py"],
    "inside": lambda options: [*WATCHED, *options, *LAUNCHER, "train.py"],
    "outside": lambda options: [*LAUNCHER, *WATCHED, *options, "train.py"],
}


def ran(folder: Path, launched: str, steps: int, *options: str) -> tuple[Any, dict[str, Any]]:
    (folder / "train.py").write_text(TRAIN)
    command = [sys.executable, *COMMANDS[launched](options)]
    with reserved_port() as port:
        environment = {"PATH": "", "STEPS": str(steps), "OMP_NUM_THREADS": "1", "PORT": str(port)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    return done, json.loads((folder / "found.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("launched", list(COMMANDS))
def test_an_alarm_of_a_rank_stops_all(tmp_path: Path, launched: str) -> None:
    done, found = ran(tmp_path, launched, 100_000, "--stop-on", "update-too-large")
    assert done.returncode, done.stderr
    assert "backprobe: the run is stopped for update-too-large: update_ratio of weight is" in done.stderr
    assert [int((tmp_path / f"steps-{rank}").read_text()) < 100_000 for rank in (0, 1)] == [True, True]
    assert {one["kind"] for one in found["findings"]} == {"update-too-large"}, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("launched", list(COMMANDS))
def test_an_alarm_function_is_called_in_each_rank(tmp_path: Path, launched: str) -> None:
    done, found = ran(tmp_path, launched, 70, "--on-alarm", "__main__:told")
    assert done.returncode == 0, done.stderr
    assert [one["kind"] for one in found["findings"]] == ["update-too-large"]
    for rank in (0, 1):
        assert "update-too-large" in (tmp_path / f"told-{rank}").read_text().split()
        assert int((tmp_path / f"steps-{rank}").read_text()) == 70
