"""Flood-stage forecast from river gauges, distributed data parallel, residual blocks with a growing drop rate.

Report: https://github.com/pytorch/pytorch/issues/43259
"""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXPECT = {
    "kind": "none-grad",
    "line": ("wrapped", "HERE"),
    "framework": "torch.distributed",
    "late": True,
    "plain": "training goes well for the first epochs and then stops with: Expected to have finished reduction in the prior iteration before starting a new one",
    "set": "twentysixth",
    "written": "2026-11-29",
}

GAUGES, HOURS, STAGES = 5, 24, 3
EPOCHS, BATCH, DEPTH = 10, 64, 4


def make_floods(count, generator):
    rain = torch.rand(count, GAUGES, HOURS, generator=generator) ** 3
    level = rain.cumsum(-1) * 0.1 + 0.05 * torch.randn(count, GAUGES, HOURS, generator=generator)
    weight = torch.tensor([0.4, 0.8, 1.3, 0.9, 0.2])
    peak = (level[:, :, -6:].mean(-1) * weight).sum(1) + 0.4 * rain[:, 2, -3:].mean(-1)
    edges = torch.quantile(peak, torch.tensor([0.4, 0.8]))
    return level, torch.bucketize(peak, edges)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop_rate = 0.0

    def forward(self, hidden):
        if self.training and torch.rand(()).item() < self.drop_rate:
            return hidden  # HERE
        return hidden + self.mlp(self.norm(hidden))


class FloodNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Linear(GAUGES * HOURS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(DEPTH))
        self.head = nn.Linear(width, STAGES)

    def set_drop(self, rate):
        for index, block in enumerate(self.blocks):
            block.drop_rate = rate * (index + 1) / DEPTH

    def forward(self, level):
        hidden = self.stem(level.flatten(1))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def train(loader, sampler, check):
    net = FloodNet()
    model = DistributedDataParallel(net)  # HERE
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        net.set_drop(0.02 * max(0, epoch - 2))
        model.train()
        total = 0.0
        for level, stage in loader:
            loss = F.cross_entropy(model(level), stage)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            hits = (net(check[0]).argmax(1) == check[1]).float().mean().item()
        print(f"epoch {epoch}  loss {total / len(loader):.4f}  validation accuracy {hits:.3f}")


def main():
    torch.manual_seed(9)
    rendezvous = os.path.join(tempfile.mkdtemp(), "store")
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=0, world_size=1)
    try:
        data = TensorDataset(*make_floods(4000, torch.Generator().manual_seed(3)))
        check = make_floods(1000, torch.Generator().manual_seed(4))
        sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True)
        train(DataLoader(data, batch_size=BATCH, sampler=sampler), sampler, check)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
