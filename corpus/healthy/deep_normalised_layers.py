"""Thirty layers with a normalisation each, in half precision, cut in two regions; gradients are accumulated."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}

BACKEND = os.environ.get("BACKEND", "aot_eager")


def layer(width=16):
    return nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(15))

    def forward(self, x):
        for one in self.layers:
            x = one(x)
        return x


torch.manual_seed(0)
net = nn.Sequential(Half(), Half())
head = nn.Linear(16, 4)
for part in net:
    part.compile(backend=BACKEND)
optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=1e-3)
for _step in range(36):
    optimizer.zero_grad()
    for _part in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(head(net(torch.randn(16, 16))).float(), torch.randint(4, (16,)))
        (loss / 2).backward()
    optimizer.step()
