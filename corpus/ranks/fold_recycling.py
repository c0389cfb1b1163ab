"""Contact maps of short chains by a pair network with recycling and activation checkpoints, DDP."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "kind": "ddp-ready-twice",
    "step": 6,
    "line": ("checkpointed", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}
KINDS, LENGTH, PAIR, BATCH, STEPS, WARM, MOST = 8, 14, 16, 6, 20, 6, 3


class Triangle(nn.Module):
    """Update of each pair through all third residues."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(PAIR)
        self.left, self.right = nn.Linear(PAIR, PAIR), nn.Linear(PAIR, PAIR)
        self.gate, self.out = nn.Linear(PAIR, PAIR), nn.Linear(PAIR, PAIR)

    def forward(self, pair):
        x = self.norm(pair)
        through = torch.einsum("bikc,bjkc->bijc", self.left(x), self.right(x)) / LENGTH
        return pair + self.gate(x).sigmoid() * self.out(through)


class Trunk(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(Triangle() for _ in range(depth))
        self.transition = nn.Sequential(
            nn.LayerNorm(PAIR), nn.Linear(PAIR, 2 * PAIR), nn.ReLU(), nn.Linear(2 * PAIR, PAIR)
        )

    def forward(self, pair):
        for layer in self.layers:
            pair = layer(pair)
        return pair + self.transition(pair)


class Folder(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Embedding(KINDS, PAIR), nn.Embedding(KINDS, PAIR)
        self.offset = nn.Embedding(2 * LENGTH, PAIR)
        self.trunk = Trunk()
        self.contact = nn.Linear(PAIR, 1)
        place = torch.arange(LENGTH)
        self.register_buffer("offsets", place[:, None] - place[None] + LENGTH)

    def forward(self, chain, cycles):
        start = self.one(chain)[:, :, None] + self.two(chain)[:, None] + self.offset(self.offsets)
        pair = start
        for _ in range(cycles):
            pair = checkpoint(self.trunk, 0.5 * (pair + start), use_reentrant=True)  # HERE
        logits = self.contact(pair).squeeze(-1)
        return 0.5 * (logits + logits.transpose(1, 2))


class Chains:
    def __init__(self, seed):
        charge = torch.randn(KINDS, 3, generator=torch.Generator().manual_seed(4))
        self.attraction = charge @ charge.T
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self):
        chain = torch.randint(0, KINDS, (BATCH, LENGTH), generator=self.gen)
        bind = self.attraction[chain[:, :, None], chain[:, None]]
        bind = F.avg_pool2d(bind[:, None], 3, 1, 1)[:, 0]
        return chain, (bind > 0.4).float()


def cycles_at(step):
    """One cycle at first, then a number between one and MOST that all ranks share."""
    if step < WARM:
        return 1
    return 2 + torch.randint(0, MOST - 1, (), generator=torch.Generator().manual_seed(step)).item()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    model = DDP(Folder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    chains = Chains(seed=120 + rank)
    for step in range(STEPS):
        chain, contact = chains.batch()
        cycles = cycles_at(step)
        loss = F.binary_cross_entropy_with_logits(model(chain, cycles), contact)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"[{rank}] step {step}: {cycles} cycles, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
