"""Two ranks with early stopping on the loss of their own shard: one loses patience and leaves, the other waits for its gradients.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/379 (early stopping with ddp stalls; synchronised in ultralytics/yolov5 pull 8345)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "rank-desync", "waiting_marker": "WAITS", "step": 150,
    "set": "fifth", "written": "2026-11-22",
}


class EarlyStopping:
    def __init__(self, patience=2, delta=1e-3):
        self.patience, self.delta, self.best, self.waited = patience, delta, float("inf"), 0

    def __call__(self, value):
        if value < self.best - self.delta:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=5))
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(10 + rank)
    x = torch.randn(160, 6, generator=g)
    y = x[:, :1] * x[:, 1:2] + (2.0 * torch.randn(160, 1, generator=g) if rank == 1 else 0.0)  # one site measures badly
    stop = EarlyStopping()
    for epoch in range(40):
        net.train()
        for i in range(0, 160, 16):
            loss = nn.functional.mse_loss(net(x[i : i + 16]), y[i : i + 16])
            opt.zero_grad()
            loss.backward()  # WAITS
            opt.step()
        net.eval()
        with torch.no_grad():
            value = nn.functional.mse_loss(net.module(x), y).item()
        print(f"rank {rank} epoch {epoch} {value:.4f}\n", end="", flush=True)
        if stop(value):
            break
    print(f"rank {rank} stops after epoch {epoch}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
