"""Healthy: FullyShardedDataParallel with a unit for each block."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 32)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def digest(model):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def batches(rank, count):
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        yield torch.randn(16, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = Net()
    policy = ModuleWrapPolicy({nn.Sequential})
    model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, y in batches(rank, 8):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        model.clip_grad_norm_(1.0)
        opt.step()
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.6f} weights {digest(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
