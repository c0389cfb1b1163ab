"""Two ranks with sharded parameters (FSDP): at the end of each epoch the first rank gathers the full weights for a checkpoint, while the other one goes to the barrier; a gathering needs everybody.

Report: https://github.com/pytorch/pytorch/issues/148756 (full_tensor under `if get_rank() == 0` ends up hanging, since not all ranks take part)
"""
import datetime
import io
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EXPECT = {
    "class": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS", "step": 35,
    "set": "tenth", "written": "2026-11-23",
}


class Mixer(nn.Module):
    def __init__(self, tokens=8, dim=16, depth=2, classes=4):
        super().__init__()
        self.inlet = nn.Linear(4, dim)
        self.across = nn.ModuleList(nn.Linear(tokens, tokens) for _ in range(depth))
        self.within = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)) for _ in range(depth))
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.inlet(x)
        for across, within in zip(self.across, self.within):
            x = x + across(x.transpose(1, 2)).transpose(1, 2)
            x = x + within(x)
        return self.out(x.mean(1))


def tracks(n, generator):
    """Four features at eight times; the class is the quadrant that the track ends in."""
    x = torch.randn(n, 8, 4, generator=generator).cumsum(1) / 3
    return x, (x[:, -1, 0] > 0).long() + 2 * (x[:, -1, 1] > 0).long()


def save(model):
    weights = {}
    for name, value in model.state_dict().items():
        weights[name] = value.full_tensor().cpu()  # WAITS
    file = io.BytesIO()
    torch.save(weights, file)
    return len(file.getvalue())


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=5))
    torch.manual_seed(0)
    model = Mixer()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(3):
        for _ in range(35):
            x, kind = tracks(32, generator)
            loss = nn.functional.cross_entropy(model(x), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank} epoch {epoch} {loss.item():.4f}\n", end="", flush=True)
        if rank == 0:
            print("saved", save(model), flush=True)
        dist.barrier()  # WAITS
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2, start_method="fork")
