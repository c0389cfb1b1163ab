"""Two-stage pipeline by hand (GPipe order): rank 0 holds the encoder, rank 1 the head and the loss."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": "rank-desync", "rank": 0, "step": 7, "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}
INPUT, HIDDEN, CLASSES, MICRO, PER_STEP = 16, 40, 5, 6, 4


def make_data():
    gen = torch.Generator().manual_seed(7)
    centers = torch.randn(CLASSES, INPUT, generator=gen) * 2
    labels = torch.randint(0, CLASSES, (240,), generator=gen)
    inputs = centers[labels] + torch.randn(240, INPUT, generator=gen)
    inputs[186:192] = float("nan")  # six rows lost their sensor readings
    return inputs, labels


def steps_of(tensor):
    """Yields for every optimizer step the list of its microbatches."""
    for chunk in tensor.split(MICRO * PER_STEP):
        yield list(chunk.split(MICRO))


def run_encoder(stage, optimizer, inputs):
    for step, micros in enumerate(steps_of(inputs)):
        outs = []
        for x in micros:
            if not torch.isfinite(x).all():
                print(f"encoder: step {step} has a broken microbatch, left out", flush=True)
                continue  # HERE
            h = stage(x)
            dist.send(h.detach(), dst=1)
            outs.append(h)
        optimizer.zero_grad()
        for h in outs:
            grad = torch.empty_like(h)
            dist.recv(grad, src=1)
            h.backward(grad / len(outs))
        optimizer.step()


def run_head(stage, optimizer, labels):
    for step, micros in enumerate(steps_of(labels)):
        received = []
        for y in micros:
            h = torch.empty(len(y), HIDDEN)
            dist.recv(h, src=0)
            received.append(h.requires_grad_())
        optimizer.zero_grad()
        total = 0.0
        for h, y in zip(received, micros):
            loss = F.cross_entropy(stage(h), y)
            loss.backward()
            dist.send(h.grad, dst=0)
            total += loss.item() / len(micros)
        for p in stage.parameters():
            p.grad /= len(micros)
        optimizer.step()
        print(f"step {step} loss {total:.4f}", flush=True)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(rank)
    inputs, labels = make_data()
    if rank == 0:
        stage = nn.Sequential(nn.Linear(INPUT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        run_encoder(stage, torch.optim.Adam(stage.parameters(), lr=3e-3), inputs)
    else:
        stage = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
        run_head(stage, torch.optim.Adam(stage.parameters(), lr=3e-3), labels)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
