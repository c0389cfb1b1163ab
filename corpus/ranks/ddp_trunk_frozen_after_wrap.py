"""Linear probing after pretraining in the same DDP wrapper: the trunk is frozen when DDP expects its gradients.

Report: https://github.com/facebookresearch/ClassyVision/pull/398
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "none-grad", "parameters": ["trunk.weight", "trunk.bias"], "cut_marker": "CUT",
    "set": "first", "written": "2026-11-22",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.trunk(x)))


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(Net())
    opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(30):
        if step == 20:
            for p in net.module.trunk.parameters():
                p.requires_grad = False  # CUT
        loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
