"""Healthy: two data-parallel models trained in turn, each with its optimizer."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(*models):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    make = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)))
    model = judge = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 1)))
    makes = torch.optim.Adam(make.parameters(), lr=1e-3)
    judges = torch.optim.Adam(judge.parameters(), lr=1e-3)
    score = nn.functional.binary_cross_entropy_with_logits
    torch.manual_seed(rank)
    for _ in range(8):
        real, noise = torch.randn(16, 2) + 1, torch.randn(16, 4)
        fake = make(noise)
        both = judge(torch.cat([real, fake.detach()]))
        judges.zero_grad()
        score(both, torch.cat([torch.ones(16, 1), torch.zeros(16, 1)])).backward()
        judges.step()
        judge.requires_grad_(False)
        loss = score(judge.module(fake), torch.ones(16, 1))
        makes.zero_grad()
        loss.backward()
        makes.step()
        judge.requires_grad_(True)
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.6f} weights {digest(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
