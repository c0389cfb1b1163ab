"""Twelve layers of a transformer with normalisation before each part, and dropout, as one region."""

import os

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}

BACKEND = os.environ.get("BACKEND", "aot_eager")


class Block(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        made = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.out(made))
        return x + self.drop(self.mlp(self.norm2(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(20, 16), nn.LayerNorm(16), nn.Linear(16, 20)
        self.blocks = nn.ModuleList(Block() for _ in range(12))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _step in range(36):
    tokens = torch.randint(20, (4, 9))
    loss = F.cross_entropy(run(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
