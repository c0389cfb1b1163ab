"""A mixture of experts over ranks, whose tokens go there and back by all_to_all (microsoft/DeepSpeed#5794)."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {"kind": "rank-desync", "rank": 1, "step": 6, "line": ("", "HERE"), "set": "ranks", "written": "2026-11-24"}


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous())
        return out


class Experts(nn.Module):
    """Each rank has one; all have room for the same number of tokens."""

    def __init__(self, width, ranks, room):
        super().__init__()
        self.router, self.ranks, self.room = nn.Linear(width, ranks), ranks, room
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        weight, expert = self.router(x).softmax(-1).max(-1)
        sent = x.new_zeros(self.ranks, self.room, x.shape[-1])
        places = [(expert == e).nonzero().flatten()[: self.room] for e in range(self.ranks)]
        if all(len(place) == 0 for place in places[1:]):
            return x + self.expert(x) * weight.unsqueeze(-1)  # HERE
        for e, place in enumerate(places):
            sent[e, : len(place)] = x[place]
        back = Exchange.apply(self.expert(Exchange.apply(sent)))
        out = x.clone()
        for e, place in enumerate(places):
            out[place] = out[place] + back[e, : len(place)] * weight[place].unsqueeze(-1)
        return out


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    model = Experts(16, ranks, 24)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    random = torch.Generator().manual_seed(5 + rank)
    with torch.no_grad():
        model.router.weight.zero_()
        model.router.weight[0, 0] = 1.0
        model.router.bias.zero_()
    for step in range(12):
        x = torch.randn(24, 16, generator=random)
        if step == 6 and rank == 1:
            x[:, 0] = x[:, 0].abs()  # a batch of one kind
        loss = (model(x) - x.flip(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.router.parameters():
            p.grad.zero_()
        optimizer.step()
    print(f"[{rank}] loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
