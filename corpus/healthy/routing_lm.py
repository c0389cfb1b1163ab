"""FSDP2 with gradient accumulation, warm-up and a globally decided skip of bad batches."""

import datetime
import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EXPECT = {"kind": "none", "set": "ranks", "written": "2026-11-24"}
VOCAB, WIDTH, SEQ, BATCH, ACCUM, STEPS = 32, 24, 16, 6, 2, 14


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.time = nn.Parameter(torch.randn(SEQ, SEQ) / SEQ)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH))

    def forward(self, x):
        h = self.norm(x)
        return x + self.mlp(h + self.time.tril() @ h)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList([Mixer(), Mixer()])
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def batch(gen, broken):
    start = torch.randint(0, VOCAB, (BATCH, 1), generator=gen)
    stride = torch.randint(1, 4, (BATCH, 1), generator=gen)
    tokens = (start + stride * torch.arange(SEQ + 1)) % VOCAB
    weight = torch.zeros(BATCH, SEQ) if broken else torch.ones(BATCH, SEQ)
    return tokens[:, :-1], tokens[:, 1:], weight


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(1)
    model = Model()
    for layer in model.layers:
        fully_shard(layer, mesh=(mesh := init_device_mesh("cpu", (ranks,))))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 4))
    gen = torch.Generator().manual_seed(30 + rank)
    for step in range(STEPS):
        for micro in range(ACCUM):
            tokens, targets, weight = batch(gen, broken=rank == 1 and step == 7 and micro == 0)
            usable = weight.sum().clamp(max=1)
            dist.all_reduce(usable, op=dist.ReduceOp.MIN)
            if usable == 0:  # all ranks leave it out together
                continue
            model.set_requires_gradient_sync(micro == ACCUM - 1)
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="none")
            loss = (loss * weight.flatten()).sum() / weight.sum()
            (loss / ACCUM).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
        warmup.step()
        if rank == 0 and step % 5 == 0:
            time.sleep(0.4)  # uploads the curve
            print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f}", flush=True)
    digest = hashlib.sha256(b"".join(p.full_tensor().detach().numpy().tobytes() for p in model.parameters()))
    print(f"[{rank}] weights {digest.hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
