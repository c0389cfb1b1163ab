"""Threads of backprobe that a script can see: none, unless there is a process group."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import threading
import torch
from torch import nn

def names():
    assert threading.active_count() == len(threading.enumerate())
    return sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())

net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
seen = [names()]
for step in range(60):
    if step == 40:
        import torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    optimizer.zero_grad()
    net(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    if step == 39:
        seen.append(names())
seen.append(names())
print(seen)
"""


def test_a_script_sees_no_thread_of_ours(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "backprobe", "run", "--quiet", "--no-keep", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    before, alone, in_group = eval(done.stdout.strip())
    assert before == alone == []
    assert in_group in ([], ["backprobe-waiting"])  # it looks after waits for other ranks, from a module call on
