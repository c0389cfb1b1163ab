"""Tensor-parallel blocks with an optimizer wrapper that keeps float32 copies and clips gradients (microsoft/DeepSpeed#1801).

Norms are held by every rank, and are to be equal. The norm to clip by is that of the rank's own parts for norms.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-drift", "cause": "changed", "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}


class Copy(torch.autograd.Function):
    """As it is in the forward, summed over ranks in the backward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    """Summed over ranks in the forward, as it is in the backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Block(nn.Module):
    def __init__(self, width, ranks):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width // ranks)
        self.down = nn.Linear(4 * width // ranks, width, bias=False)

    def forward(self, x):
        h = Copy.apply(self.norm(x))
        return x + Reduce.apply(self.down(torch.nn.functional.gelu(self.up(h))))


class Clipped:
    """Steps AdamW with gradients that are clipped."""

    def __init__(self, model, norm):
        self.parameters, self.norm = list(model.parameters()), norm
        self.optimizer = torch.optim.AdamW(self.parameters, lr=3e-3)

    def step(self):
        total = torch.nn.utils.clip_grad_norm_(self.parameters, self.norm)  # HERE
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), *(Block(32, ranks) for _ in range(2)), nn.LayerNorm(32), nn.Linear(32, 1))
    with torch.no_grad():  # parts of a rank are its own
        random = torch.Generator().manual_seed(10 + rank)
        for name, p in model.named_parameters():
            if "up" in name or "down" in name:
                p.copy_(torch.randn(p.shape, generator=random) * 0.2)
    optimizer = Clipped(model, 0.5)
    data = torch.Generator().manual_seed(1)
    for _ in range(30):
        x = torch.randn(32, 16, generator=data)
        y = x[:, :4].prod(1, keepdim=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
    print(f"[{rank}] loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
