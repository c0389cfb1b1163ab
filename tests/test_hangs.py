"""Ranks that wait for one another, in real processes: the messages during the wait, and the findings afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from types import CodeType
from typing import Any

import pytest

from backprobe.observe.trackers.collective_wait import CollectiveWaitWatcher
from backprobe.torch_internals import code_objects

SCRIPT = """
import datetime, os, sys, time
import torch, torch.distributed as dist
from torch import nn

how, flag, limit = sys.argv[1:]
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(limit)))
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)

def loads():
    while not os.path.exists(flag):
        time.sleep(0.2)  # SLEEPS

for step in range(6):
    if step == 4 and rank == 1:
        if how == "slow":
            loads()
        if how == "extra":
            dist.barrier()  # EXTRA
        if how == "crash":
            os.abort()  # CRASHES
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()  # WAITS
    optimizer.step()
print("done", rank, "TORCH_FR_BUFFER_SIZE" in os.environ, flush=True)
dist.barrier()
"""


def start(tmp_path, how: str, limit: int) -> tuple[subprocess.Popen[str], list[str]]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "backprobe", "run", "--out", str(tmp_path / "run")]
    command += ["--findings", str(tmp_path / "found.json"), *torchrun, str(script), how]
    process = subprocess.Popen(
        [*command, str(tmp_path / "flag"), str(limit)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return process, SCRIPT.splitlines()


@pytest.mark.slow
def test_a_hang_inside_backward_is_reported_while_it_lasts(tmp_path) -> None:
    process, lines = start(tmp_path, "slow", 3000)
    said = []
    with process:
        try:
            for line in process.stderr:
                said.append(line)
                if "has waited" in line:
                    (tmp_path / "flag").touch()
            assert process.wait(600) == 0, "".join(said)
            printed = process.stdout.read()
        finally:
            process.kill()
    waits = next(at for at, text in enumerate(lines, 1) if text.endswith("# WAITS"))
    sleeps = next(at for at, text in enumerate(lines, 1) if text.endswith("# SLEEPS"))
    (line,) = [one for one in said if "has waited" in one]
    assert line.startswith("backprobe: rank 0 has waited")
    assert f"inside backward (number {line.partition('number ')[2].split()[0]} of the default group)" in line
    assert f"at train.py:{waits}; rank 1 has not called it" in line
    assert f"at train.py:{sleeps}: time.sleep(0.2)" in line
    assert sorted(printed.split("\n"))[1:] == ["done 0 False", "done 1 False"]
    assert json.loads((tmp_path / "found.json").read_text())["findings"] == []


@pytest.mark.slow
def test_an_operation_more_on_one_rank_is_found_at_its_line(tmp_path) -> None:
    process, lines = start(tmp_path, "extra", 30)
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    found = json.loads((tmp_path / "found.json").read_text())["findings"][0]
    assert (found["kind"], found["rank"]) == ("rank-desync", 1), errors
    (skipping,) = [site for site in found["sites"] if site["role"] == "skipping"]
    assert lines[skipping["line"] - 1].endswith("# EXTRA")
    assert "rank 1 called barrier at train.py:" in found["title"]


@pytest.mark.slow
def test_a_rank_that_crashes_in_c_code_is_found_at_its_line(tmp_path) -> None:
    process, lines = start(tmp_path, "crash", 3000)
    _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    found = json.loads((tmp_path / "found.json").read_text())["findings"][0]
    assert (found["kind"], found["rank"], found["title"]) == (
        "rank-failed",
        1,
        "rank 1 crashed: Fatal Python error: Aborted",
    ), errors
    (raised,) = found["sites"]
    assert lines[raised["line"] - 1].endswith("# CRASHES")
    assert "Fatal Python error" not in errors.partition("backprobe:")[0]  # torch and Python say what they say alone


#: A module of torch.distributed, which says where it is seen.
MODULE = """
def all_reduce():
    look(sys._getframe())
look(sys._getframe())
"""


def test_a_module_that_is_imported_is_no_collective() -> None:
    class Frames:
        def is_user(self, code: CodeType) -> bool:
            return code.co_filename == __file__

    waiting, seen = CollectiveWaitWatcher(Frames()), []  # type: ignore[arg-type]
    scope: dict[str, Any] = {"sys": sys, "look": lambda frame: seen.append(waiting._place_and_collective(frame)[1])}
    exec(compile(MODULE, f"{code_objects.COLLECTIVES}a_module.py", "exec"), scope)
    scope["all_reduce"]()
    assert seen == ["", "all_reduce"]
