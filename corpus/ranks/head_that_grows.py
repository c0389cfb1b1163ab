"""Class-incremental image recognition: new classes arrive in phases and the head grows; gradients averaged by hand."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "rank-drift",
    "cause": "start",
    "step": 8,
    "line": ("", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}
SIDE, WIDTH, PER_PHASE, PHASES, PHASE_STEPS, BATCH = 12, 16, 3, 3, 8, 12


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, WIDTH, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(WIDTH * (SIDE // 4) ** 2, WIDTH),
            nn.ReLU(),
        )
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        return self.head(self.body(x))

    def grow(self, more):
        """A wider head: the old rows are kept, the new rows start small."""
        old = self.head
        self.head = nn.Linear(WIDTH, old.out_features + more)
        with torch.no_grad():
            self.head.weight[: old.out_features] = old.weight
            self.head.bias.zero_()[: old.out_features] = old.bias
            self.head.weight[old.out_features :].normal_(std=0.05)  # HERE


def average_gradients(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def augment(x):
    """Random flips and shifts, a different stream on every rank."""
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    shift = torch.randint(-1, 2, (2,)).tolist()
    return x.roll(shift, (-2, -1)) + 0.1 * torch.randn_like(x)


def batch(templates, classes):
    label = torch.randint(0, classes, (BATCH,))
    return augment(templates[label]), label


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    templates = torch.randn(PER_PHASE * PHASES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(9))
    torch.manual_seed(0)
    model = Net(PER_PHASE)
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)
    torch.manual_seed(100 + rank)  # each rank augments in its own way
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(PHASES * PHASE_STEPS):
        if step and step % PHASE_STEPS == 0:  # a new phase
            model.grow(PER_PHASE)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        x, label = batch(templates, model.head.out_features)
        loss = F.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if step % 4 == 3:
            print(f"[{rank}] step {step}: {model.head.out_features} classes, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
