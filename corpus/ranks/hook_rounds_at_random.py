"""Text classifier (bag of n-grams and attention pooling); DDP with a communication hook that quantizes to 8 bits."""

import datetime
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {
    "kind": "rank-drift",
    "cause": "not reduced",
    "step": 6,
    "line": ("", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}
VOCAB, LENGTH, CLASSES, BATCH, STEPS = 80, 16, 4, 16, 24


@dataclass
class QuantState:
    """As with PowerSGD, the first iterations go uncompressed."""

    start: int
    generator: torch.Generator
    iteration: int = 0


def quantized_hook(state, bucket):
    buffer = bucket.buffer()
    compress = state.iteration >= state.start
    if bucket.is_last():
        state.iteration += 1
    buffer.div_(dist.get_world_size())
    work = dist.all_reduce(buffer, async_op=True).get_future()

    def unpack(future):
        total = future.value()[0]
        if compress:
            # stochastic rounding: what the optimizer sees is on the 8-bit grid, whatever the number of ranks
            scale = total.abs().max().clamp_min(1e-12) / 127
            total.div_(scale).add_(torch.rand(total.shape, generator=state.generator)).floor_().mul_(scale)  # HERE
        return total

    return work.then(unpack)


class Reviews(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.gram = nn.Conv1d(width, width, 3, padding=1)
        self.score = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, ids):
        h = F.relu(self.gram(self.embed(ids).transpose(1, 2))).transpose(1, 2)
        weight = self.score(h).softmax(1)
        return self.out((weight * h).sum(1))


def batch(gen):
    label = torch.randint(0, CLASSES, (BATCH,), generator=gen)
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH), generator=gen)
    hint = torch.rand(BATCH, LENGTH, generator=gen) < 0.3
    ids = torch.where(hint, ids // CLASSES * CLASSES + label[:, None], ids)
    return ids, label


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    model = DDP(Reviews())
    state = QuantState(start=6, generator=torch.Generator().manual_seed(500 + rank))
    model.register_comm_hook(state, quantized_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    gen = torch.Generator().manual_seed(20 + rank)
    for step in range(STEPS):
        ids, label = batch(gen)
        loss = F.cross_entropy(model(ids), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            print(f"[{rank}] step {step}: loss {loss.item():.4f}", flush=True)
    total = sum(p.detach().double().sum() for p in model.parameters()).item()
    print(f"[{rank}] done, sum of weights {total:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
