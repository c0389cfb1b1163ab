"""Healthy: a character model with tied weights, frozen positions, bf16 autocast, accumulation and an averaged copy."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from pydoc_data.topics import topics

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(31)

TEXT = "\n".join(topics[k] for k in sorted(topics))[:90000]
CHARS = sorted(set(TEXT))
IDS = torch.tensor([CHARS.index(c) for c in TEXT])
CTX, MICRO, ACCUM = 32, 12, 2


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class Writer(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.tok = nn.Embedding(len(CHARS), dim)
        nn.init.normal_(self.tok.weight, std=0.05)
        pos = torch.zeros(CTX, dim)
        ang = torch.arange(CTX)[:, None] * torch.exp(-torch.arange(0, dim, 2) / dim * math.log(100.0))
        pos[:, 0::2], pos[:, 1::2] = ang.sin(), ang.cos()
        self.pos = nn.Parameter(0.1 * pos, requires_grad=False)
        self.blocks = nn.ModuleList([Block(dim, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, len(CHARS), bias=False)
        self.out.weight = self.tok.weight

    def forward(self, ids):
        h = self.tok(ids) + self.pos[: ids.shape[1]]
        for blk in self.blocks:
            h = blk(h)
        return self.out(self.norm(h))


def groups(model, decay):
    keep, plain = [], []
    for p in model.parameters():
        if p.requires_grad:
            (keep if p.dim() > 1 else plain).append(p)
    return [{"params": keep, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]


def batch(lo, hi, n):
    s = torch.randint(lo, hi - CTX - 1, (n,))
    win = IDS[s[:, None] + torch.arange(CTX + 1)]
    return win[:, :-1], win[:, 1:]


@torch.no_grad()
def blend(avg, model, decay):
    for a, p in zip(avg.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)


@torch.no_grad()
def heldout(model):
    x, y = batch(80000, len(IDS), 64)
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()


def main():
    model = Writer()
    shadow = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(groups(model, 0.05), lr=4e-3, betas=(0.9, 0.98))
    steps = 260
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 30) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, s / steps)))
    )
    for step in range(steps):
        total = 0.0
        for _ in range(ACCUM):
            x, y = batch(0, 80000, MICRO)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(x)
            loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten()) / ACCUM
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        blend(shadow, model, min(0.97, (step + 1) / (step + 10)))
        if (step + 1) % 52 == 0:
            print(f"step {step + 1} loss {total:.3f} held out {heldout(model):.3f} averaged {heldout(shadow):.3f}")


if __name__ == "__main__":
    main()
