"""Stochastic depth under DDP on two processes: a block that is skipped has no gradient, the next forward fails.

Report: https://github.com/catalyst-team/catalyst/issues/1110
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "none-grad", "parameters": ["blocks.1.weight", "blocks.1.bias"], "cut_marker": "CUT",
    "set": "first", "written": "2026-11-22",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.out, self.calls = nn.ModuleList(nn.Linear(6, 6) for _ in range(2)), nn.Linear(6, 2), 0

    def forward(self, x):
        self.calls += 1
        for i, block in enumerate(self.blocks):
            if i == 1 and self.calls > 8:  # CUT
                continue
            x = x + torch.relu(block(x))
        return self.out(x)


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(Net())
    opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(15):
        loss = net(torch.randn(8, 6)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
