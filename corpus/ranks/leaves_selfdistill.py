"""Self-distillation without labels on leaf outlines (student, slow teacher, centred targets), DDP."""

import copy
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {"kind": "rank-drift", "cause": "buffer", "line": ("cause", "HERE"), "set": "ranks", "written": "2026-11-24"}
POINTS, WIDTH, PROTOTYPES, BATCH, STEPS, CENTRE_FROM = 48, 32, 20, 24, 24, 5


class Outline(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(2, WIDTH, 5, stride=2, padding=2, padding_mode="circular")
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 5, stride=2, padding=2, padding_mode="circular")
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, PROTOTYPES))

    def forward(self, x):
        h = F.gelu(self.conv2(F.gelu(self.conv1(x))))
        return self.head(h.mean(-1))


class SelfDistill(nn.Module):
    def __init__(self, tau_student=0.2, tau_teacher=0.08):
        super().__init__()
        self.student = Outline()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.tau_student, self.tau_teacher = tau_student, tau_teacher
        self.register_buffer("centre", torch.zeros(PROTOTYPES))

    def forward(self, one, two):
        with torch.no_grad():
            raw = self.teacher(torch.cat([one, two]))
            target = F.softmax((raw - self.centre) / self.tau_teacher, -1).chunk(2)
        guess = F.log_softmax(self.student(torch.cat([two, one])) / self.tau_student, -1).chunk(2)
        loss = sum(-(t * g).sum(-1).mean() for t, g in zip(target, guess)) / 2
        return loss, raw

    @torch.no_grad()
    def follow(self, momentum):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.lerp_(fast, 1 - momentum)

    @torch.no_grad()
    def recentre(self, raw, momentum=0.9):
        self.centre.mul_(momentum).add_(raw.mean(0), alpha=1 - momentum)  # HERE


class Leaves:
    """Closed outlines with lobes; two views differ in turn, size and jitter."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.angle = torch.arange(POINTS) / POINTS * 6.2832

    def view(self, radius):
        count = len(radius)
        turn = torch.randint(0, POINTS, (1,), generator=self.gen).item()
        size = 0.8 + 0.4 * torch.rand(count, 1, generator=self.gen)
        r = size * radius.roll(turn, 1) + 0.03 * torch.randn(count, POINTS, generator=self.gen)
        return torch.stack([r * self.angle.cos(), r * self.angle.sin()], 1)

    def pairs(self, count):
        lobes = torch.randint(2, 7, (count, 1), generator=self.gen)
        depth = 0.1 + 0.4 * torch.rand(count, 1, generator=self.gen)
        radius = 1 + depth * torch.cos(lobes * self.angle)
        return self.view(radius), self.view(radius)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    model = DDP(SelfDistill(), broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.module.student.parameters(), lr=2e-3, weight_decay=0.02)
    leaves = Leaves(seed=80 + rank)
    for step in range(STEPS):
        one, two = leaves.pairs(BATCH)
        loss, raw = model(one, two)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.module.student.parameters(), 3.0)
        optimizer.step()
        model.module.follow(0.95 + 0.05 * step / STEPS)
        if step >= CENTRE_FROM:
            model.module.recentre(raw)
        if step % 4 == 3:
            spread = raw.argmax(1).unique().numel()
            print(f"[{rank}] step {step}: loss {loss.item():.4f}, {spread} prototypes in use", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
