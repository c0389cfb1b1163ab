"""A GAN whose two networks have a process group each; each rank reduces first the one that has the larger loss there."""

import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

EXPECT = {"kind": "rank-desync", "line": ("branch", "HERE"), "set": "ranks", "written": "2026-11-25"}


def make_g():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))


def make_d():
    return nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def reduce(net, group):
    grads = [p.grad for p in net.parameters()]
    flat = parameters_to_vector(grads)
    dist.all_reduce(flat, group=group)
    vector_to_parameters(flat / dist.get_world_size(group), grads)


def real_batch(rank, step, g):
    angle = torch.rand(32, generator=g) * 6.283
    radius = 1.0 if rank == 0 or step < 25 else 4.0  # rank 1's second file holds the wide ring
    return radius * torch.stack([angle.cos(), angle.sin()], 1)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    limit = timedelta(seconds=12)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=limit)
    group_g, group_d = (dist.new_group([0, 1], timeout=limit) for _ in range(2))
    torch.manual_seed(0)
    netG, netD = make_g(), make_d()
    optG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.99))
    optD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.99))
    g = torch.Generator().manual_seed(rank)
    for step in range(200):
        real, z = real_batch(rank, step, g), torch.randn(32, 8, generator=g)
        fake = netG(z)
        score_r, score_f = netD(real), netD(fake.detach())
        loss_d = F.softplus(-score_r).mean() + F.softplus(score_f).mean()
        optD.zero_grad()
        loss_d.backward()
        netD.requires_grad_(False)
        loss_g = F.softplus(-netD(fake)).mean() + 0.7
        optG.zero_grad()
        loss_g.backward()
        netD.requires_grad_(True)
        jobs = [(loss_g.item(), netG, group_g, optG), (loss_d.item(), netD, group_d, optD)]
        for _, net, group, opt in sorted(jobs, key=lambda job: -job[0]):  # HERE
            reduce(net, group)
            opt.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} D {loss_d.item():.3f} G {loss_g.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
