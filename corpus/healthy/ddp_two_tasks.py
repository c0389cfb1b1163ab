"""Two tasks with a shared trunk on two gloo processes, gradient accumulation with no_sync.

Story: even rounds train one head, odd rounds the other, so that in each round one head has no
gradient (find_unused_parameters=True is there for that); gradients are only exchanged at the
last of three micro batches, and only rank 0 logs.  It looks like the reports of DDP users with
unused parameters (pytorch/pytorch#33148 and Lightning-AI/pytorch-lightning#11242 are about
hangs of such scripts), but this one is right: all ranks take the same branches.
"""
import contextlib
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXPECT = {"class": "x", "kind": "none", "plain": {"outcome": "silent"}, "set": "fourteenth", "written": "2026-11-26"}

WORLD, MICRO = 2, 3


class TwoTask(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.heads = nn.ModuleDict({"price": nn.Linear(width, 1), "kind": nn.Linear(width, 3)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


class Source:
    """Every rank draws its own samples from the same law."""

    def __init__(self, rank):
        self.g = torch.Generator().manual_seed(100 + rank)
        law = torch.Generator().manual_seed(1)
        self.a, self.b = torch.randn(10, generator=law), torch.randn(10, 3, generator=law)

    def draw(self, n=32):
        x = torch.randn(n, 10, generator=self.g)
        return x, torch.tanh(x @ self.a), (x @ self.b).argmax(1)


def task_loss(model, batch, task):
    x, price, kind = batch
    out = model(x, task)
    if task == "price":
        return nn.functional.mse_loss(out.squeeze(1), price)
    return nn.functional.cross_entropy(out, kind)


def train(rank, rounds=200):
    torch.manual_seed(0)
    model = DistributedDataParallel(TwoTask(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    source = Source(rank)
    recent = {"price": [], "kind": []}
    for r in range(rounds):
        task = ("price", "kind")[r % 2]
        optimizer.zero_grad(set_to_none=True)
        for micro in range(MICRO):
            last = micro == MICRO - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = task_loss(model, source.draw(), task) / MICRO
                loss.backward()
        optimizer.step()
        shared = loss.detach() * MICRO
        dist.all_reduce(shared)
        recent[task].append(shared.item() / WORLD)
        if rank == 0 and (r + 1) % 40 == 0:
            means = {k: sum(v[-20:]) / len(v[-20:]) for k, v in recent.items()}
            print(f"round {r + 1} price {means['price']:.4f} kind {means['kind']:.4f}", flush=True)
    dist.barrier()


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=timedelta(seconds=20))
    try:
        train(rank)
    finally:
        dist.destroy_process_group()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(port,), nprocs=WORLD)


if __name__ == "__main__":
    main()
