"""Healthy: workers load, rank 0 evaluates the module itself and saves while the others wait."""

import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(*models):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,)))
    sampler = DistributedSampler(data, ranks, rank, seed=3)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    folder = tempfile.mkdtemp()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            model.module.eval()
            with torch.no_grad():
                model.module(data.tensors[0])
            model.module.train()
            torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, os.path.join(folder, "last.pt"))
            time.sleep(7)
        dist.barrier()
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.6f} weights {digest(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
