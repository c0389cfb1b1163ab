"""Healthy: weights distributed by hand with DTensor, one split by rows, one replicated."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(model):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def batches(rank, count):
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        yield torch.randn(16, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)


class Mixer(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.up = nn.Parameter(distribute_tensor(torch.randn(8, 24) / 3, mesh, [Shard(1)]))
        self.down = nn.Parameter(distribute_tensor(torch.randn(24, 4) / 5, mesh, [Shard(0)]))
        self.bias = nn.Parameter(distribute_tensor(torch.zeros(4), mesh, [Replicate()]))

    def forward(self, x):
        return (x @ self.up).relu() @ self.down + self.bias


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = Mixer(mesh := init_device_mesh("cpu", (ranks,)))

    opt = torch.optim.SGD(model.parameters(), lr=1e-1)
    for x, y in batches(0, 8):
        opt.zero_grad()
        out = model(distribute_tensor(x, mesh, [Replicate()])).full_tensor()
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
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
