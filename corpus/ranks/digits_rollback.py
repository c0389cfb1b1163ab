"""Handwritten digits, DDP; when the validation gets worse, go back to the best weights and halve the rate."""

import copy
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXPECT = {
    "kind": "rank-drift",
    "cause": "written",
    "rank": 0,
    "line": ("cause", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}
BATCH, EPOCHS, CHECK = 32, 2, 3


def digits():
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(8))
    held, train = order[:300], order[300:1500]
    return TensorDataset(x[train], y[train]), TensorDataset(x[held], y[held])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 16, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


class Rollback:
    """Keeps the best weights; after `patience` checks without progress goes back to them with half the rate."""

    def __init__(self, model, optimizer, rank, patience=1):
        self.model, self.optimizer, self.rank, self.patience = model, optimizer, rank, patience
        self.best, self.state, self.bad, self.rollbacks = float("inf"), None, 0, 0

    def check(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
            self.keep()
            return False
        self.bad += 1
        if self.bad < self.patience:
            return False
        self.back()
        return True

    def keep(self):
        if self.rank == 0:  # HERE
            self.state = copy.deepcopy(self.model.state_dict())

    def back(self):
        if self.state is not None:
            self.model.load_state_dict(self.state)  # HERE
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.5
        self.optimizer.state.clear()
        self.bad = 0
        self.rollbacks += 1


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = torch.zeros(2)
    for x, y in loader:
        total += torch.stack([F.cross_entropy(model(x), y, reduction="sum"), torch.tensor(float(len(y)))])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    train, held = digits()
    sampler = DistributedSampler(train, ranks, rank, drop_last=True)
    loader = DataLoader(train, BATCH, sampler=sampler, drop_last=True)
    held_loader = DataLoader(held, 50, sampler=DistributedSampler(held, ranks, rank, shuffle=False))
    model = DDP(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-2)
    rollback = Rollback(model.module, optimizer, rank)
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % CHECK == 0:
                held_loss = validate(model.module, held_loader)
                went_back = rollback.check(held_loss)
                note = f", back to {rollback.best:.4f}" if went_back else ""
                print(
                    f"[{rank}] after {step} steps: loss {loss.item():.4f}, held-out {held_loss:.4f}{note}", flush=True
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
