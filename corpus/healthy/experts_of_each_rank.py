"""Mixture of experts for regional house prices: every rank holds its own experts, tokens travel by all_to_all."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": None, "set": "ranks", "written": "2026-11-24"}
FIELDS, WIDTH, EXPERTS, BATCH, STEPS = 10, 16, 2, 32, 30  # experts of one rank


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, receive):
        ctx.send, ctx.receive = send, receive
        out = x.new_empty(sum(receive), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), receive, send)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.send), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), ctx.send, ctx.receive)
        return out, None, None


class MoE(nn.Module):
    def __init__(self, rank, ranks):
        super().__init__()
        self.ranks = ranks
        self.router = nn.Linear(WIDTH, EXPERTS * ranks)
        gen_state = torch.get_rng_state()
        torch.manual_seed(900 + rank)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(EXPERTS)
        )
        torch.set_rng_state(gen_state)

    def forward(self, x):
        weight, choice = self.router(x).softmax(-1).max(-1)
        order = choice.argsort(stable=True)
        counts = torch.bincount(choice, minlength=EXPERTS * self.ranks).view(self.ranks, EXPERTS)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        send, receive = counts.sum(1).tolist(), incoming.sum(1).tolist()
        tokens = Exchange.apply(x[order], send, receive)
        which = torch.arange(EXPERTS).repeat(self.ranks).repeat_interleave(incoming.flatten())
        out = torch.zeros_like(tokens)
        for e, expert in enumerate(self.experts):
            rows = (which == e).nonzero()[:, 0]
            if len(rows):
                out = out.index_copy(0, rows, expert(tokens[rows]))
        back = Exchange.apply(out, receive, send)
        return x + weight[:, None] * torch.zeros_like(x).index_copy(0, order, back)


class Prices(nn.Module):
    def __init__(self, rank, ranks):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(FIELDS, WIDTH), nn.SiLU())
        self.moe = MoE(rank, ranks)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.out(self.moe(self.front(x)))[:, 0]


def reduce_gradients(model):
    ranks = dist.get_world_size()
    for name, p in model.named_parameters():
        if "experts" in name:  # an expert has seen the tokens of all ranks already
            if p.grad is not None:
                p.grad /= ranks
        else:
            dist.all_reduce(p.grad)
            p.grad /= ranks


def houses(gen, rank):
    x = torch.randn(BATCH, FIELDS, generator=gen) + 0.5 * rank
    region = x[:, 0] > 0.3
    y = torch.where(region, x[:, 1] * 1.5 - x[:, 2], x[:, 3].tanh() + 0.5 * x[:, 4])
    return x, y + 0.05 * torch.randn(BATCH, generator=gen)


def main(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=15))
    torch.manual_seed(0)
    model = Prices(rank, ranks)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    gen = torch.Generator().manual_seed(10 + rank)
    for step in range(STEPS):
        x, y = houses(gen, rank)
        loss = F.smooth_l1_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        reduce_gradients(model)
        optimizer.step()
        if step % 5 == 4:
            print(f"[{rank}] step {step}: loss {loss.item():.4f}", flush=True)
    shared = sum(p.detach().double().sum() for n, p in model.named_parameters() if "experts" not in n).item()
    print(f"[{rank}] sum of the shared weights {shared:.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # by torchrun
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        ranks = int(os.environ.get("RANKS", 2))
        mp.spawn(main, (ranks, f"file://{tempfile.mkdtemp()}/store"), nprocs=ranks)
