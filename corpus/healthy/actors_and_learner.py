"""Healthy: rank 0 learns, the others play with the weights that it sends, and send what they saw."""

import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-22"}


def digest(*models):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for model in models for p in model.parameters()]
    return hashlib.sha256(b"".join(t.detach().float().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss = torch.zeros(())
    for _ in range(8):
        for p in model.parameters():
            dist.broadcast(p.data, src=0)
        if rank == 0:
            seen = [torch.empty(10, 5) for _ in range(1, ranks)]
            for source, one in enumerate(seen, 1):
                dist.recv(one, src=source)
            rows = torch.cat(seen)
            chosen = model(rows[:, :4]).log_softmax(-1).gather(1, (rows[:, 4:] > 0).long())
            loss = -(chosen * rows[:, 4:].abs()).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        else:
            with torch.no_grad():
                states = torch.randn(10, 4)
                reward = model(states)[:, :1] + torch.randn(10, 1)
            dist.send(torch.cat([states, reward], 1), dst=0)
    dist.barrier()
    print(f"rank {rank}: loss {loss.item():.6f} weights {digest(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
