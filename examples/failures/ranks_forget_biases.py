"""Gradients are averaged by hand over two ranks, but only of matrices: each rank trains biases of its own."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-drift", "line": ("backward", "BACKWARD"), "parameters": ["0.bias", "2.bias"]}


def train(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(5):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()  # BACKWARD
        for p in model.parameters():
            if p.dim() == 2:
                dist.all_reduce(p.grad)
                p.grad /= 2
        opt.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    store = os.path.join(tempfile.mkdtemp(), "store")
    ranks = [mp.get_context("fork").Process(target=train, args=(rank, store)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
