"""DDP without find_unused_parameters: the regression head is not used in the warm-up phase; the second forward raises."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn

EXPECT = {"kind": "none-grad", "parameters": ["box.weight", "box.bias"]}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.cls = nn.Linear(6, 8), nn.Linear(8, 3)
        self.box = nn.Linear(8, 4)  # DEFINED

    def forward(self, x, warmup):
        h = torch.relu(self.trunk(x))
        return (self.cls(h), None) if warmup else (self.cls(h), self.box(h))


def train(rank, world, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        torch.manual_seed(0)
        ddp = nn.parallel.DistributedDataParallel(Detector())
        opt = torch.optim.SGD(ddp.parameters(), 0.1)
        for step in range(4):
            logits, boxes = ddp(torch.randn(5, 6), warmup=step < 3)
            loss = nn.functional.cross_entropy(logits, torch.randint(0, 3, (5,)))
            if boxes is not None:
                loss = loss + boxes.abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    train(0, 1, os.path.join(tempfile.mkdtemp(), "store"))
