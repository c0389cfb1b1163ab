"""Residual MLP on digits, its wide layers split over the ranks with DTensor."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

EXPECT = {
    "kind": "rank-drift",
    "cause": "inputs",
    "step": 14,
    "line": ("seeded", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}

WIDTH, BATCH, STEPS, AUGMENT_FROM = 64, 48, 50, 14


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(64, WIDTH)
        self.blocks = nn.ModuleList(FeedForward(WIDTH, 4 * WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def jitter(x):
    """Shift the 8x8 image by up to one pixel and add some noise."""
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    image = torch.roll(x.view(-1, 8, 8), (dy, dx), (1, 2))
    return image.flatten(1) + 0.05 * torch.randn_like(x)


def batches(x, y, seed):
    gen = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(x), generator=gen).split(BATCH):
            if len(index) == BATCH:
                yield x[index], y[index]


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=12))
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = Net()
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    torch.manual_seed(1000 + rank)  # HERE

    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train = batches(x[:1500], y[:1500], seed=1)
    sharded = [
        p for n, p in model.named_parameters() if ".up." in n or n.endswith("down.weight") or n.endswith("down.bias")
    ]
    names = {id(p) for p in sharded}
    plain = [p for p in model.parameters() if id(p) not in names]
    opts = [torch.optim.AdamW(sharded, lr=2e-3), torch.optim.AdamW(plain, lr=2e-3)]
    for step in range(STEPS):
        inputs, labels = next(train)
        if step >= AUGMENT_FROM:
            inputs = jitter(inputs)
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        for opt in opts:
            opt.step()
            opt.zero_grad()
        if step % 10 == 9:
            right = accuracy(model, x[1500:], y[1500:])
            if rank == 0:
                print(f"step {step}: loss {loss.item():.3f} accuracy {right:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
