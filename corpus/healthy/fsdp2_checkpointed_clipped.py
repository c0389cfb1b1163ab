"""Healthy: fully_shard around checkpointed blocks, gradients clipped, one sub-group of a mesh."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(*models):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.mix = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.mix(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), *(checkpoint_wrapper(Block()) for _ in range(2)), nn.Linear(16, 5))
    for block in model[1:3]:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for _ in range(8):
        x = torch.randn(4, 7, 5)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
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
