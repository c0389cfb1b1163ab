"""Healthy: two stages with a loss, an optimizer and a dtype each; the second sends back the gradient of its input."""

import hashlib
import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-25"}

MICRO, CHUNKS, DIM = 8, 4, 24


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), nn.ReLU(), nn.AvgPool1d(4), nn.Flatten())
        self.out = nn.Linear(48, DIM)
        self.back = nn.Linear(DIM, 32)

    def forward(self, x):
        h = torch.tanh(self.out(self.conv(x)))
        return h, (self.back(h) - x[:, 0]).square().mean()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIM), nn.GELU())
        self.head = nn.Linear(DIM, 3)

    def forward(self, h):
        return self.head(h + checkpoint(self.block, h, use_reentrant=False))


def data(step):
    g = torch.Generator().manual_seed(step)
    label = torch.randint(0, 3, (MICRO * CHUNKS,), generator=g)
    t = torch.arange(32) / 32 * 6.283
    x = torch.sin((label[:, None] + 1) * t) + 0.2 * torch.randn(MICRO * CHUNKS, 32, generator=g)
    return x[:, None].chunk(CHUNKS), label.chunk(CHUNKS)


def first_stage(steps):
    torch.manual_seed(1)
    net = Encoder()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        opt.zero_grad()
        kept, sends = [], []
        for x in data(step)[0]:
            h, local = net(x)
            sends.append(dist.isend(h.detach().contiguous(), dst=1))
            kept.append((h, local))
        for h, local in kept:
            grad = torch.empty_like(h)
            dist.recv(grad, src=1)
            torch.autograd.backward([local / CHUNKS, h], [None, grad])
        for s in sends:
            s.wait()
        opt.step()
    return net, local


def last_stage(steps):
    torch.manual_seed(2)
    net = Classifier()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(steps):
        opt.zero_grad()
        for label in data(step)[1]:
            h = torch.empty(MICRO, DIM)
            dist.recv(h, src=0)
            h.requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = net(h)
            loss = nn.functional.cross_entropy(logits.float(), label) / CHUNKS
            loss.backward()
            dist.send(h.grad, dst=0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step} classification {loss.item() * CHUNKS:.4f}", flush=True)
    return net, loss


def digest(*models):
    tensors = [p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    net, loss = (first_stage if rank == 0 else last_stage)(40)
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.6f} weights {digest(net)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
