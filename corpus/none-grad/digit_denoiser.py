"""A small conditional diffusion model of digit images under DistributedDataParallel (gloo, one process here).

After https://github.com/Yuanhy1997/SeqDiffuSeq/issues/25 (error in training).
"""
import os
import tempfile

import torch
from torch import nn
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "BRANCH"),
    "framework": "torch.distributed",
    "plain": "RuntimeError: Expected to have finished reduction in the prior iteration, after some dozens of normal steps",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}

STEPS = 60


class Denoiser(nn.Module):
    def __init__(self, width=256, classes=10):
        super().__init__()
        self.label = nn.Embedding(classes, 32)
        self.label_in = nn.Linear(32, width)
        self.time_in = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Linear(64, width)
        self.middle = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
                                    for _ in range(3))
        self.leave = nn.Linear(width, 64)
        self.register_buffer("freq", torch.exp(torch.linspace(0, 4, 8)))

    def forward(self, x, t, label=None):
        phase = t[:, None] * self.freq
        h = self.enter(x) + self.time_in(torch.cat([phase.sin(), phase.cos()], dim=1))
        if label is not None:
            h = h + self.label_in(self.label(label))  # BRANCH
        for block in self.middle:
            h = h + block(h)
        return self.leave(h)


class Schedule:
    def __init__(self):
        beta = torch.linspace(1e-3, 0.15, STEPS)
        self.keep = torch.cumprod(1 - beta, dim=0)

    def noisy(self, x, step, noise):
        k = self.keep[step][:, None]
        return k.sqrt() * x + (1 - k).sqrt() * noise


def diffusion_loss(model, schedule, x, y, gen, drop):
    step = torch.randint(0, STEPS, (len(x),), generator=gen)
    noise = torch.randn(x.shape, generator=gen)
    blind = torch.rand(1, generator=gen).item() < drop
    guess = model(schedule.noisy(x, step, noise), step.float() / STEPS, None if blind else y)
    return F.mse_loss(guess, noise)


def run(rank, world):
    torch.manual_seed(3 + rank)
    raw = load_digits()
    x = torch.tensor(raw.data, dtype=torch.float32) / 8.0 - 1.0
    data = TensorDataset(x, torch.tensor(raw.target))
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(Denoiser())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    schedule = Schedule()
    gen = torch.Generator().manual_seed(13 + rank)
    for epoch in range(30):
        sampler.set_epoch(epoch)
        total = 0.0
        for images, labels in loader:
            loss = diffusion_loss(model, schedule, images, labels, gen, drop=0.02)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch + 1:2d}  noise error {total / len(loader):.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "meet"), rank=0, world_size=1)
        try:
            run(0, 1)
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
