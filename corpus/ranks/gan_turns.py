"""Small GAN on the 8x8 digits, data parallel with hand-written averaging."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"kind": "rank-desync", "line": ("branch", "HERE"), "set": "ranks", "written": "2026-11-24"}

LATENT, BATCH, STEPS, WARMUP = 16, 32, 80, 10


def mlp(*sizes, act=nn.LeakyReLU):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(act(0.2))
    return nn.Sequential(*layers)


class Player:
    """A network, its optimizer and the process group its gradients travel on."""

    def __init__(self, net, lr, group):
        self.net, self.group = net, group
        self.opt = torch.optim.Adam(net.parameters(), lr=lr, betas=(0.5, 0.99))
        self.avg = None
        for p in net.parameters():
            dist.broadcast(p.data, src=0, group=group)

    def update(self, loss):
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in self.net.parameters()])
        dist.all_reduce(flat, group=self.group)
        flat /= dist.get_world_size(self.group)
        at = 0
        for p in self.net.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        self.opt.step()
        value = loss.item()
        self.avg = value if self.avg is None else 0.8 * self.avg + 0.2 * value


def real_fake_loss(disc, gen, real):
    fake = gen(torch.randn(len(real), LATENT)).detach()
    return F.softplus(-disc(real)).mean() + F.softplus(disc(fake)).mean()


def fool_loss(disc, gen, n):
    return F.softplus(-disc(gen(torch.randn(n, LATENT)))).mean()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=12)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=limit)
    group_d = dist.new_group(range(ranks), timeout=limit)
    group_g = dist.new_group(range(ranks), timeout=limit)

    torch.manual_seed(7)
    disc = Player(mlp(64, 128, 64, 1), 1e-3, group_d)
    gen = Player(mlp(LATENT, 64, 128, 64), 1e-3, group_g)

    images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    mine = images[rank::ranks]
    torch.manual_seed(100 + rank)

    for step in range(STEPS):
        real = mine[torch.randint(len(mine), (BATCH,))]
        turns = ["d", "g"]
        if step >= WARMUP and gen.avg > 0.6 * disc.avg:  # HERE
            turns = ["g", "d"]  # the generator is behind, let it move first
        for turn in turns:
            if turn == "d":
                disc.update(real_fake_loss(disc.net, gen.net, real))
            else:
                gen.update(fool_loss(disc.net, gen.net, BATCH))
        if rank == 0 and step % 10 == 0:
            print(f"step {step} d {disc.avg:.3f} g {gen.avg:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
