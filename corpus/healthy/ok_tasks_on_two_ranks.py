"""Two processes learn two properties of crystals: each batch has one of them and so uses one of two heads, find_unused_parameters is set, gradients are summed up over two batches with no_sync, and only the first process prints. Healthy.

Report: https://github.com/tatp22/linformer-pytorch/issues/23 (DDP's text about unused parameters and parameters that are marked ready; here detection is on and every head gets its turn on all ranks)
"""
import os
import tempfile
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {"class": "healthy", "kind": "none", "set": "eleventh", "written": "2026-11-23"}
PROPERTIES = ("gap", "density")


class CrystalNet(nn.Module):
    def __init__(self, features=12, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.heads = nn.ModuleDict({name: nn.Linear(width, 1) for name in PROPERTIES})

    def forward(self, atoms, name):
        return self.heads[name](self.trunk(atoms).mean(1)).squeeze(-1)


class Crystals:
    def __init__(self):
        self.rule = {name: torch.randn(12) for name in PROPERTIES}

    def batch(self, name, count=32):
        atoms = torch.randn(count, 5, 12)
        return atoms, torch.tanh(atoms @ self.rule[name] / 3).mean(1)


def train(rank, world, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    torch.manual_seed(0)
    crystals, model = Crystals(), DDP(CrystalNet(), find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    torch.manual_seed(10 + rank)
    for step in range(40):
        name = PROPERTIES[step % 2]
        optimizer.zero_grad()
        for part in range(2):
            atoms, value = crystals.batch(name)
            with model.no_sync() if part == 0 else nullcontext():
                loss = F.mse_loss(model(atoms, name), value) / 2
                loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 < 2:
            print(f"step {step} {name} loss {2 * loss.item():.4f}", flush=True)
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"mean of both processes {2 * mean.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(2, os.path.join(folder, "meeting")), nprocs=2)
