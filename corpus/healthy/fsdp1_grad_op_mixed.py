"""Healthy: FullyShardedDataParallel that shards gradients only, in bfloat16, on checkpointed blocks."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(*models):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(12, 12), nn.SiLU()) for _ in range(3))
        self.last = nn.Linear(12, 4)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.last(x)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FullyShardedDataParallel(
        Deep(),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        mixed_precision=half,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for _ in range(8):
        x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))
        loss = nn.functional.cross_entropy(model(x).float(), y)
        opt.zero_grad()
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
