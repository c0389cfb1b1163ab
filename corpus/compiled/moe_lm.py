"""Tiny mixture-of-experts language model; domain tags restrict which experts a token may use."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "blocks.0.moe.router",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(8)
V, D, E, T = 50, 32, 4, 12


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(D, E, bias=False)

    def forward(self, x, allowed):
        logits = self.w(x).masked_fill(~allowed, float("-inf"))
        gate = torch.softmax(logits, dim=-1)  # HERE
        return gate


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.up = nn.Parameter(torch.randn(E, D, 2 * D) * D**-0.5)
        self.down = nn.Parameter(torch.randn(E, 2 * D, D) * (2 * D) ** -0.5)

    def forward(self, x, allowed):
        g = self.router(x, allowed)
        h = F.gelu(torch.einsum("btd,edh->bteh", x, self.up))
        y = torch.einsum("bteh,ehd->bted", h, self.down)
        return (g.unsqueeze(-1) * y).sum(2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.moe = MoE()

    def forward(self, x, allowed):
        q, k, v = self.qkv(self.n1(x)).chunk(3, -1)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.moe(self.n2(x), allowed)


class LM(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.pos = nn.Parameter(torch.zeros(T, D))
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(D)

    def forward(self, ids, allowed):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        for blk in self.blocks:
            x = blk(x, allowed)
        return self.norm(x) @ self.tok.weight.t()


# domain -> usable experts; domain 3 was added later and has no expert yet
DOMAIN = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]]).bool()

lm = LM()
for blk in lm.blocks:
    blk.compile(backend=BACKEND)
opt = torch.optim.AdamW(lm.parameters(), lr=3e-3)
for step in range(20):
    n_domain = 3 if step < 9 else 4
    ids = torch.cumsum(torch.randint(1, 3, (8, T + 1)), 1) % V
    dom = torch.randint(0, n_domain, (8, 1)).expand(8, T)
    logits = lm(ids[:, :-1], DOMAIN[dom])
    loss = F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, f"{loss.item():.4f}")
