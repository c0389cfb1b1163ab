"""GRU forecaster on sensor series, DDP with gradient accumulation over an epoch that need not divide evenly."""

import contextlib
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EXPECT = {
    "kind": "rank-drift",
    "step": 5,
    "cause": "not reduced",
    "line": ("", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}
WINDOW, BATCH, ACCUM, EPOCHS = 12, 8, 4, 3


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


def series(count):
    gen = torch.Generator().manual_seed(5)
    t = torch.arange(WINDOW + 1)
    freq = 0.2 + torch.rand(count, 1, generator=gen)
    phase = 6.28 * torch.rand(count, 1, generator=gen)
    wave = torch.sin(freq * t + phase) + 0.05 * torch.randn(count, WINDOW + 1, generator=gen)
    return TensorDataset(wave[:, :-1, None], wave[:, -1:])


def train_epoch(model, loader, optimizer, done):
    count = len(loader)
    for i, (x, y) in enumerate(loader):
        boundary = (i + 1) % ACCUM == 0
        quiet = contextlib.nullcontext() if boundary else model.no_sync()  # HERE
        with quiet:
            loss = (model(x) - y).square().mean()
            (loss / ACCUM).backward()
        if boundary or i + 1 == count:  # flush what is left of the epoch, too
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            done += 1
    return done, loss.item()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    data = series(352)  # 22 batches a rank: five full groups and a rest of two
    sampler = DistributedSampler(data, ranks, rank, seed=2)
    loader = DataLoader(data, BATCH, sampler=sampler)
    model = DDP(Forecaster())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    done = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        done, loss = train_epoch(model, loader, optimizer, done)
        total = sum(p.detach().double().sum() for p in model.parameters()).item()
        print(f"[{rank}] epoch {epoch}: {done} steps, loss {loss:.4f}, sum of weights {total:.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
