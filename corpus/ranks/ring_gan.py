"""GAN on a ring of Gaussians with two DDP models; the critic is slowed down when it wins too easily."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

EXPECT = {
    "kind": "rank-drift",
    "rank": 1,
    "cause": "optimizer",
    "line": ("", "HERE"),
    "set": "ranks",
    "written": "2026-11-24",
}
NOISE, BATCH, ROUNDS = 6, 64, 20


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def ring(gen, hard):
    mode = torch.randint(0, 8, (BATCH,), generator=gen)
    angle = mode * 0.785
    radius = 4.0 if hard else 1.0
    return radius * torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(BATCH, 2, generator=gen)


class Balance:
    """Keeps the critic from running away: halves its step size while it is right nearly always."""

    def __init__(self, optimizer, target=0.9, decay=0.6):
        self.optimizer, self.target, self.decay = optimizer, target, decay
        self.right, self.slowed = 0.5, False

    def update(self, real, fake):
        right = ((real > 0).float().mean() + (fake < 0).float().mean()).item() / 2
        self.right = self.decay * self.right + (1 - self.decay) * right
        if self.right > self.target and not self.slowed:
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5  # HERE
            self.slowed = True
        return self.right


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(21)
    maker, critic = DDP(mlp(NOISE, 48, 48, 2)), DDP(mlp(2, 48, 48, 1))
    opt_m = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.99))
    opt_c = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.99))
    balance = Balance(opt_c)
    gen = torch.Generator().manual_seed(70 + rank)
    for r in range(ROUNDS):
        real = ring(gen, hard=rank == 1)  # the second site's scanner has another scale
        fake = maker(torch.randn(BATCH, NOISE, generator=gen))
        scores = critic(torch.cat([real, fake.detach()]))
        s_real, s_fake = scores.chunk(2)
        loss_c = F.softplus(-s_real).mean() + F.softplus(s_fake).mean()
        opt_c.zero_grad()
        loss_c.backward()
        was = opt_c.param_groups[0]["lr"]
        right = balance.update(s_real, s_fake)
        opt_c.step()

        for p in critic.parameters():
            p.requires_grad_(False)
        loss_m = F.softplus(-critic.module(fake)).mean()
        opt_m.zero_grad()
        loss_m.backward()
        opt_m.step()
        for p in critic.parameters():
            p.requires_grad_(True)
        lr = opt_c.param_groups[0]["lr"]
        weight = sum(p.detach().double().sum() for p in critic.parameters()).item()
        print(f"[{rank}] round {r} right {right:.2f} lr {was:.4f}->{lr:.4f} critic {weight:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
