"""A contrastive model of two towers, its gradients averaged by hand: the temperature is in neither tower."""

import itertools
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dfn
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "kind": "rank-drift",
    "cause": "not reduced",
    "step": 0,
    "parameters": ["log_temp"],
    "line": ("loop", "HERE"),
    "set": "ranks",
    "written": "2026-11-25",
}


class GlobalBatchNorm(nn.Module):
    def __init__(self, dim, momentum=0.1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.momentum = momentum

    def forward(self, x):
        if self.training:
            moments = dfn.all_reduce(torch.stack([x.mean(0), x.square().mean(0)])) / dist.get_world_size()
            mean, var = moments[0], moments[1] - moments[0].square()
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.var.lerp_(var, self.momentum)
        else:
            mean, var = self.mean, self.var
        return (x - mean) * (var + 1e-5).rsqrt() * self.weight + self.bias


def tower(inp):
    return nn.Sequential(nn.Linear(inp, 32), GlobalBatchNorm(32), nn.ReLU(), nn.Linear(32, 16))


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = tower(20), tower(12)
        self.log_temp = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        a = nn.functional.normalize(self.image(image), dim=1)
        b = nn.functional.normalize(self.text(text), dim=1)
        logits = self.log_temp.exp() * a @ b.t()
        labels = torch.arange(len(a))
        return (nn.functional.cross_entropy(logits, labels) + nn.functional.cross_entropy(logits.t(), labels)) / 2


@torch.no_grad()
def average(model):
    world = dist.get_world_size()
    for p in itertools.chain(model.image.parameters(), model.text.parameters()):  # HERE
        dist.all_reduce(p.grad)
        p.grad.div_(world)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = TwoTower()
    mix = torch.randn(12, 20)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(1000 + rank)
    for step in range(60):
        text = torch.randn(24, 12, generator=g)
        image = text @ mix + (0.5 + rank) * torch.randn(24, 20, generator=g)
        loss = model(image, text)
        opt.zero_grad()
        loss.backward()
        average(model)
        opt.step()
        if rank == 0 and step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} temperature {model.log_temp.exp().item():.3f}", flush=True)
    print(f"rank {rank} final temperature {model.log_temp.exp().item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
