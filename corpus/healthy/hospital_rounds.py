"""Federated-style training: local steps at each site, a weighted average every few steps, uneven data, global stop."""

import datetime
import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": "none", "set": "ranks", "written": "2026-11-24"}
FEATURES, BATCH, ROUNDS, PATIENCE = 10, 16, 9, 2


def site(rank):
    """Sites have other sizes and another case mix, but the same relation."""
    gen = torch.Generator().manual_seed(60 + rank)
    truth = torch.randn(FEATURES, generator=torch.Generator().manual_seed(9))
    count = 112 if rank == 0 else 80
    x = torch.randn(count, FEATURES, generator=gen) + 0.3 * rank
    y = (x @ truth + 0.3 * torch.randn(count, generator=gen) > 0.2 * rank).float()
    return (x[:-32], y[:-32]), (x[-32:], y[-32:])


@torch.no_grad()
def average(model, weight):
    total = torch.tensor(float(weight))
    dist.all_reduce(total)
    for p in model.parameters():
        p.mul_(weight / total)
        dist.all_reduce(p)


@torch.no_grad()
def evaluate(model, data, ranks):
    x, y = data
    logits = model(x)[:, 0]
    mine = {"loss": F.binary_cross_entropy_with_logits(logits, y, reduction="sum").item(), "count": len(y)}
    if (y == 1).sum() > 3:
        mine["recall"] = (logits[y == 1] > 0).float().mean().item()
    reports = [None] * ranks
    dist.all_gather_object(reports, mine)
    return sum(r["loss"] for r in reports) / sum(r["count"] for r in reports)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    train, valid = site(rank)
    gen = torch.Generator().manual_seed(rank)
    best, bad = float("inf"), 0
    for r in range(ROUNDS):
        order = torch.randperm(len(train[0]), generator=gen)
        for pick in order.split(BATCH):  # five steps at site 0, three at site 1
            loss = F.binary_cross_entropy_with_logits(model(train[0][pick])[:, 0], train[1][pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        average(model, len(train[0]))
        score = evaluate(model, valid, ranks)
        if rank == 0:
            print(f"round {r} valid loss {score:.4f}", flush=True)
        best, bad = (score, 0) if score < best else (best, bad + 1)
        if bad >= PATIENCE:
            break
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    print(f"[{rank}] weights {digest.hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
