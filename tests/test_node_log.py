"""``backprobe run --log-nodes``: the complete backward as lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from backprobe.observe.trackers.node_log import lines
from backprobe.records import BackwardCall, BadValues, GradStat, Node, NodeRun, Raised, Root, Site

SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    net(torch.ones(2, 3)).square().sum().backward()  # LOSS
    optimizer.step()
print(sum(p.double().sum().item() for p in net.parameters()))
"""


def ran(folder, *arguments, script=SCRIPT, environment=()):
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "backprobe", "run", "--no-keep", *arguments, "train.py"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **dict(environment)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=env)


def untimed(line):
    return re.sub(r"(, | in )[\d.]+ (us|ms|s)$", "", line)


def test_lines_of_chosen_steps(tmp_path):
    done = ran(tmp_path, "--log-nodes", "--log-file", "log.txt", "--steps", "1:3")
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "log.txt").read_text().splitlines()
    assert "node 0:" not in done.stderr
    heads = [line for line in found if " nodes in " in line]
    assert [line.split(":")[0] for line in heads] == ["step 1 backward 1", "step 2 backward 2"]
    first = [line for line in found if line.startswith("step 1 ")][1:]
    assert [int(re.match(r"step 1 backward 1 node (\d+): ", line)[1]) for line in first] == list(range(len(first)))
    names = [re.search(r"#\d+ (\w+)", line)[1] for line in first]
    # The engine's order, by its rule: later in the forward first, accumulators as soon as they can run.
    assert names == [
        *("SumBackward0", "PowBackward0", "AddmmBackward0", "AccumulateGrad", "TBackward0", "AccumulateGrad"),
        *("TanhBackward0", "AddmmBackward0", "AccumulateGrad", "TBackward0", "AccumulateGrad"),
    ]
    assert " in 2 at train.py:9: in 2x1 norm " in first[2]
    assert all(
        re.search(r"; out 1 norm \S+; 2x4 norm \S+; 1x4|out 1 norm \S+; 2x4 norm \S+; 4x1", x) for x in first[2:3]
    )
    assert "AccumulateGrad of 2.bias: in 1 norm " in first[3] and " us" in first[2]
    # To standard error, the same lines; and the script runs as without.
    other = ran(tmp_path, "--log-nodes", "--steps", "1:3")
    same = [
        re.sub(r"(, | in )[\d.]+ (us|ms|s)$", "", line) for line in other.stderr.splitlines() if " backward " in line
    ]
    assert [line for line in same if line.startswith("step ")] == [
        re.sub(r"(, | in )[\d.]+ (us|ms|s)$", "", line) for line in found
    ]
    plain = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert plain.stdout == done.stdout == other.stdout


def test_norms_are_those_of_the_gradients(tmp_path):
    script = SCRIPT.replace("    optimizer.step()", "    print(*[p.grad.norm().item() for p in net.parameters()])")
    done = ran(tmp_path, "--log-nodes", "--steps", "0:1", script=script)
    logged = dict(re.findall(r"AccumulateGrad of (\S+): in \S+ norm (\S+)", done.stderr))
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    true = dict(zip(names, map(float, done.stdout.split("\n")[0].split()), strict=True))
    assert {name: float(norm) for name, norm in logged.items()} == pytest.approx(true, rel=1e-5)


RANKS = """
import torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    net = torch.nn.Linear(2, 1)
    net(torch.ones(3, 2)).sum().backward()
    dist.destroy_process_group()
if __name__ == "__main__":
    import os
    mp.spawn(main, (os.path.abspath("store"),), nprocs=2)
"""


def test_ranks_are_distinguished(tmp_path):
    done = ran(tmp_path, "--log-nodes", "--log-file", "log.txt", script=RANKS)
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "log.txt").read_text().splitlines()
    for rank in (0, 1):
        own = [line for line in found if line.startswith(f"[rank {rank}] step 0 backward 0")]
        assert len(own) == 6 and "AddmmBackward0" in "".join(own)
    assert len(found) == 12


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--log-file", "x"], "--log-file says where a log goes: say what to log too, with --log-nodes"),
        (["--log-nodes", "--level", "minimal"], "--level minimal records none: use --level nodes or full"),
        (["--log-nodes", "--log-file", "no/such/x"], "cannot write the log to no/such/x: No such file or directory"),
    ],
)
def test_wrong_use(tmp_path, arguments, text):
    done = ran(tmp_path, *arguments)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr


def test_a_log_that_cannot_be_written_ends_and_the_run_goes_on(tmp_path):
    script = SCRIPT.replace(
        "    optimizer.step()", "    optimizer.step()\n    import os, shutil\n    shutil.rmtree('logs', 1)"
    )
    (tmp_path / "logs").mkdir()
    done = ran(tmp_path, "--log-nodes", "--log-file", "logs/a.txt", script=script)
    assert done.returncode == 0 and done.stdout
    assert done.stderr.count("backprobe: the log of nodes ends here: [Errno 2]") == 1
    assert "no findings in 4 steps" in " ".join(done.stderr.split())


def test_text_of_hand_written_records():
    site = Site("/a/b.py", 7, "f")
    first = Node(0, "MulBackward0", 5, "block\x1b[31m", 2, site, "mul", None, ((1, 0), None))
    leaf = Node(1, "torch::autograd::AccumulateGrad", 2**64 - 1, None, 1, None, "", "w", (), (2,))
    late = Node(2, "SinBackward0", 1, "", 1, None, "sin", None, ())
    bad = BadValues(1, 0, 6, (2, 3))
    runs = [
        NodeRun(leaf, 1, None, (GradStat(None, "float32", None),), ()),
        NodeRun(
            first, 0, 2e-6, (GradStat((2, 3), "bfloat16", float("nan"), bad), None), (GradStat(None, None, 2.5), None)
        ),
        NodeRun(late, None, None, (), ()),
    ]
    runs.sort(key=lambda r: r.node.index)
    raised = Raised("RuntimeError", "no\nmore", 2, False)
    root = Root(0, (), "float32", 1.5, None)
    call = BackwardCall(3, 4, "Tensor.backward", {}, (root,), site, 0.5, raised, runs, inside=1)
    assert list(lines(call, lambda i, k: (2,) if (i, k) == (1, 0) else None)) == [
        "step 4 backward 3 inside backward 1: Tensor.backward from scalar 1.5 at b.py:7: 2 of 3 nodes in 500.00 ms",
        "step 4 backward 3 node 0: #0 MulBackward0 in block?[31m:2 at b.py:7: in 2x3 bfloat16 norm nan (NaN in 1 of 6 "
        "elements); none; out 2 norm 2.5, 2.0 us",
        "step 4 backward 3 node 1: #1 AccumulateGrad of w: in 2 norm not measured",
        "step 4 backward 3 raised RuntimeError in #2 SinBackward0 (most likely): no",
    ]
