"""Parameters without a gradient in data-parallel training, whose next forward raises, and unnumbered nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from handmade import at, call, kinds, leaf, only, parameter, roles, run, traced
from torch import nn
from torch.autograd.function import once_differentiable
from watching import watched

import backprobe
from backprobe.basics.torch_texts import UNREDUCED
from backprobe.records import RankSeen, RankWait, Unreduced
from backprobe.source.definitions import choices

TESTS_FOLDER = Path(__file__).resolve().parent
NODES = (run("SumBackward0", 1, op="sum", line=13), leaf("weight"))


def test_an_unreduced_parameter_is_an_error_and_the_wait_of_other_ranks_its_consequence() -> None:
    seen = Unreduced(("experts.2.weight",), 3, None, (at(20), at(19)), at(90), True, at(70))
    found = only(traced(call(*NODES), seen=[seen], parameters=[parameter("experts.2.weight", reached=0)]))
    assert (found.kind, found.severity, found.module, found.step) == ("none-grad", "error", "experts.2", 3)
    assert roles(found) == [("cut", 20), ("cut", 19), ("wrapped", 70), ("failed", 90)]
    frozen = only(traced(call(*NODES), seen=[Unreduced(("trunk.weight",), 3, at(31), (), at(90), True)]))
    assert roles(frozen) == [("cut", 31), ("failed", 90)]

    wait = RankWait("all_reduce", at(40), 10.0, 5.0, "raised")
    here, gone = RankSeen(0, 1, (wait,)), RankSeen(1, 2, error=UNREDUCED, findings=(found,))
    assert kinds(traced(call(*NODES), seen=[here, gone])) == ["none-grad"]
    silent = RankSeen(1, 2, error=UNREDUCED)
    assert kinds(traced(call(*NODES), seen=[here, silent])) == ["rank-failed"]


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.out = nn.ModuleList(nn.Linear(4, 4) for _ in range(2)), nn.Linear(4, 2)
        self.side = nn.Linear(4, 4)
        self.skip = False

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if i and self.skip:
                continue
            x = x + block(x)
        if not self.skip:
            x = x + self.side(x)
        return self.out(x)


def test_the_lines_that_decide_whether_something_is_used() -> None:
    texts = [[site.text for site in choices(Deep, name)] for name in ("blocks", "side", "out", "nothing")]
    assert texts[0] == ["if i and self.skip:", "for i, block in enumerate(self.blocks):"]
    assert texts[1][-2:] == ["if not self.skip:", "x = x + self.side(x)"]
    assert texts[2][-1] == "return self.out(x)"
    assert texts[3] == []


def test_a_run_that_ends_so_names_what_the_last_backward_left_out() -> None:
    model = Deep()
    model.out.bias.requires_grad_(False)
    session, collector = watched()
    session.start()
    for step in range(5):
        model.skip = step == 4
        model(torch.randn(3, 4)).sum().backward()
        model.zero_grad()
    session.stop()
    assert not collector.trace(session).facts.of(Unreduced)
    session.context.raised = RuntimeError(f"{UNREDUCED} before starting a new one. This error ...")
    found = collector.trace(session).findings
    assert [(f.kind, f.severity, f.step) for f in found] == [("none-grad", "error", 4)] * 2
    names = {name: f.sites[-2].site.text for f in found for name in f.parameters}
    assert names.keys() == {"blocks.1.weight", "blocks.1.bias", "side.weight", "side.bias"}
    assert names["side.bias"] == "x = x + self.side(x)"


#: The step in which parameters are left out is not recorded, and others were frozen before.
REPLICA = """
import os
import sys
import torch
import torch.distributed as dist
from test_ddp_unused_parameters import Deep
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", init_method=f"file://{os.path.abspath(sys.argv[1])}", rank=0, world_size=1)
torch.manual_seed(0)
model = Deep()
model.blocks[0].weight.requires_grad_(False)
replica = DDP(model)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(30):
    model.skip = step == 20
    replica(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_in_a_step_that_was_not_recorded_the_error_says_which(tmp_path) -> None:
    (tmp_path / "train.py").write_text(REPLICA)
    command = [sys.executable, "-m", "backprobe", "run", "--no-keep", "--steps", "0:10", "--findings", "found.json"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS_FOLDER.parent), str(TESTS_FOLDER)])}
    done = subprocess.run([*command, "train.py", "store"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and UNREDUCED in done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["findings"]
    assert [(f["kind"], f["severity"], f["step"]) for f in found] == [("none-grad", "error", 20)] * 2, done.stderr
    wrapped = {s["text"] for f in found for s in f["sites"] if s["role"] == "wrapped"}
    assert wrapped == {"replica = DDP(model)"}
    names = {name for f in found for name in f["parameters"]}
    assert names == {f"{inside}.{leaf}" for inside in ("blocks.1", "side") for leaf in ("weight", "bias")}


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return grad * s * (1 + x * (1 - s))


@pytest.mark.parametrize("step", [0, 6])
def test_a_function_without_a_second_derivative_is_named_where_it_was_applied(step) -> None:
    first, last = nn.Linear(4, 8), nn.Linear(8, 1)
    with pytest.raises(RuntimeError), backprobe.trace(nn.Sequential(first, last)) as trace:
        for at_step in range(8):
            x = torch.randn(3, 4, requires_grad=True)
            out = last(Swish.apply(first(x)))
            loss = out.sum()
            if at_step == step:
                (force,) = torch.autograd.grad(loss, x, create_graph=True)
                loss = loss + force.square().sum()
            loss.backward()
            first.zero_grad()
            last.zero_grad()
    assert trace.findings[0].kind == "backward-error"
    assert trace.findings[0].sites[0].site.text == "out = last(Swish.apply(first(x)))"
