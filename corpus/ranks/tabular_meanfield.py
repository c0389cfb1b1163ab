"""Tabular regression, data parallel by hand; metrics go to a JSONL file from a background thread."""

import datetime
import json
import os
import queue
import tempfile
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

EXPECT = {"kind": "rank-desync", "rank": 0, "step": 12, "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}
FEATURES, BATCH, STEPS = 20, 32, 30


class MetricWriter:
    """Keeps file I/O off the training thread. Bounded, so that a slow disk cannot eat the memory."""

    def __init__(self, path, depth=4):
        self.items = queue.Queue(maxsize=depth)
        self.path = path
        self.thread = threading.Thread(target=self._drain, daemon=True)
        self.thread.start()

    def _drain(self):
        try:
            with open(self.path, "w") as out:
                while (item := self.items.get()) is not None:
                    out.write(json.dumps(item) + "\n")
        except TypeError:  # closing: the interpreter has torn json down
            return

    def log(self, **fields):
        self.items.put(fields)  # HERE

    def close(self):
        self.items.put(None)
        self.thread.join()


def average_gradients(model, ranks):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= ranks
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()
    return flat.norm()


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    truth = torch.randn(FEATURES)
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    writer = MetricWriter(os.path.join(tempfile.mkdtemp(), "metrics.jsonl")) if rank == 0 else None
    gen = torch.Generator().manual_seed(10 + rank)
    for step in range(STEPS):
        x = torch.randn(BATCH, FEATURES, generator=gen)
        y = torch.tanh(x @ truth)[:, None]
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = average_gradients(model, ranks)
        if rank == 0:
            fields = {"step": step, "loss": loss.item()}
            if step % 8 == 7:
                fields["grad_norm"] = norm  # the expensive ones now and then
            writer.log(**fields)
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        optimizer.step()
    if rank == 0:
        writer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
