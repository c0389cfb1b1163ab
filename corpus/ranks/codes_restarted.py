"""A vector-quantised autoencoder; rank 0 starts codes that nothing uses again, and tells nobody."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {
    "kind": "rank-drift",
    "rank": 0,
    "cause": "written",
    "parameters": ["codebook.weight"],
    "line": ("cause", "HERE"),
    "set": "ranks",
    "written": "2026-11-25",
}

CODES = 24


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.codebook = nn.Embedding(CODES, 8)
        self.dec = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.probe = nn.Linear(8, 3)
        self.register_buffer("used", torch.zeros(CODES))

    def forward(self, x, label=None):
        z = self.enc(x)
        index = torch.cdist(z.detach(), self.codebook.weight.detach()).argmin(1)
        q = self.codebook(index)
        if self.training:
            self.used += torch.bincount(index, minlength=CODES)
        loss = (q - z.detach()).square().mean() + 0.25 * (z - q.detach()).square().mean()
        out = self.dec(z + (q - z).detach())
        loss = loss + (out - x).square().mean()
        if label is not None:
            loss = loss + 0.1 * nn.functional.cross_entropy(self.probe(z), label)
        return loss


@torch.no_grad()
def restart_dead_codes(net, x):
    dead = (net.used < 1).nonzero().flatten()
    if len(dead):
        z = net.enc(x)
        net.codebook.weight[dead] = z[torch.randint(0, len(z), (len(dead),))]  # HERE
    net.used.zero_()
    return len(dead)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    net = VQ()
    model = DDP(net, find_unused_parameters=True)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    centres = torch.randn(3, 16)
    g = torch.Generator().manual_seed(9 + rank)
    for step in range(120):
        label = torch.randint(0, 3, (32,), generator=g)
        x = centres[label] + 0.4 * torch.randn(32, 16, generator=g)
        loss = model(x, label if step % 2 == 0 else None)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 40 == 39:
            n = restart_dead_codes(net, x)
            print(f"step {step} loss {loss.item():.4f}, restarted {n} codes", flush=True)
    print(f"rank {rank} codebook norm {net.codebook.weight.norm().item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
