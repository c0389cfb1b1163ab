"""Two process regression with a validation every 60 steps.

Story: training runs on two gloo processes; the validation loss is reduced over the group but
only the first rank prints, so only the first rank was given the validation.  The job stands
still at the first validation and is killed by the timeout.
Based on public reports of the kind Lightning-AI/pytorch-lightning#20404 and #11242, and
the skip that only one rank takes in NVIDIA-NeMo/Automodel#2468.
"""
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXPECT = {
    "class": "x", "kind": "rank-desync", "waiting_marker": "WAIT", "plain": {"outcome": "error", "error": "-- Process"},
    "set": "fourteenth", "written": "2026-11-26",
}

WORLD = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_houses(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    price = x[:, :4].sum(1) + 0.7 * x[:, 4] * x[:, 5] + 0.1 * torch.randn(n, generator=g)
    return TensorDataset(x, price)


def build_model():
    return nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    for x, y in loader:
        totals[0] += (model.module(x).squeeze(1) - y).pow(2).sum()
        totals[1] += len(y)
    dist.all_reduce(totals)  # WAIT
    model.train()
    return (totals[0] / totals[1]).item()


def train(rank, train_set, valid_set, steps=240, every=60):
    torch.manual_seed(0)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    sampler = DistributedSampler(train_set, WORLD, rank, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=32, sampler=sampler, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=64, sampler=DistributedSampler(valid_set, WORLD, rank, shuffle=False))
    step, epoch = 0, 0
    while step < steps:
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % every == 0:
                if rank == 0:
                    print(f"step {step} train {loss.item():.4f} valid {validate(model, valid_loader):.4f}", flush=True)
                dist.barrier()
        epoch += 1


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=timedelta(seconds=8))
    try:
        train(rank, make_houses(2048, 0), make_houses(512, 1))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(free_port(),), nprocs=WORLD)
