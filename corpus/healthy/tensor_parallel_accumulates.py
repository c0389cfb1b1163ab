"""Healthy: tensor parallel with two micro-batches a step, and the head left whole."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(*models):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.up = nn.Linear(12, 24)
        self.down = nn.Linear(24, 12)
        self.norm = nn.RMSNorm(12)
        self.head = nn.Linear(12, 20, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.down(nn.functional.gelu(self.up(x)))
        return self.head(self.norm(x))


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    model = parallelize_module(Net(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for _ in range(6):
        opt.zero_grad()
        for _ in range(2):
            tokens = torch.randint(0, 20, (4, 9))
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / 2
            loss.backward()
        opt.step()
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.6f} weights {digest(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
