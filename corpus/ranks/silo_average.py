"""Local SGD over data silos: several local steps, then parameter averaging; best model by validation."""

import copy
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": "rank-desync", "rank": 0, "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}
FEATURES, CLASSES, LOCAL_STEPS, ROUNDS, PATIENCE = 12, 3, 3, 20, 2


def silo(rank):
    gen = torch.Generator().manual_seed(rank)
    centers = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(99))
    noise = 3.0 if rank == 0 else 0.9
    y = torch.randint(0, CLASSES, (256,), generator=gen)
    x = centers[y] + noise * torch.randn(256, FEATURES, generator=gen)
    return (x[:192], y[:192]), (x[192:], y[192:])


class Patience:
    def __init__(self, limit):
        self.limit, self.best, self.bad, self.state = limit, float("inf"), 0, None

    def update(self, loss, model):
        if loss < self.best - 1e-3:
            self.best, self.bad, self.state = loss, 0, copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.limit


@torch.no_grad()
def evaluate(model, data, ranks):
    x, y = data
    logits = model(x)
    report = {"n": len(y), "hits": int((logits.argmax(-1) == y).sum())}
    everyone = [None] * ranks
    dist.all_gather_object(everyone, report)
    accuracy = sum(r["hits"] for r in everyone) / sum(r["n"] for r in everyone)
    return F.cross_entropy(logits, y).item(), accuracy


@torch.no_grad()
def average(model, ranks):
    for p in model.parameters():
        dist.all_reduce(p)
        p /= ranks


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    train, valid = silo(rank)
    gen = torch.Generator().manual_seed(20 + rank)
    stopper = Patience(PATIENCE)
    for r in range(ROUNDS):
        for _ in range(LOCAL_STEPS):
            pick = torch.randint(0, len(train[0]), (48,), generator=gen)
            optimizer.zero_grad()
            F.cross_entropy(model(train[0][pick]), train[1][pick]).backward()
            optimizer.step()
        average(model, ranks)
        loss, accuracy = evaluate(model, valid, ranks)
        print(f"[{rank}] round {r} valid loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)
        if stopper.update(loss, model):
            break  # HERE
    model.load_state_dict(stopper.state)
    average(model, ranks)  # a soup of the silos' best
    print(f"[{rank}] done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
