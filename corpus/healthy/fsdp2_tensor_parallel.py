"""Healthy: tensor parallel inside fully_shard on a mesh of two dimensions (ranks by one)."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(24)
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 24), nn.Linear(24, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
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
    mesh = init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("data", "tensor"))
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for x, y in batches(rank, 8):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
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
