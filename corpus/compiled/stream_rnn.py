"""Character-ish stream model with a stateful cell, truncated BPTT over chunks."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "second-backward",
    "line": ("reused", "TAKES"),
    "module": "mem.cell",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(9)
V, H, CHUNK, BS = 20, 32, 6, 8


class MinGRU(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.zc = nn.Linear(2 * d, 2 * d)
        self.norm = nn.LayerNorm(d)

    def forward(self, x, h):
        z, c = self.zc(torch.cat([x, h], -1)).chunk(2, -1)  # TAKES
        z = z.sigmoid()
        return self.norm((1 - z) * h + z * c.tanh())


class StatefulMemory(nn.Module):
    """keeps the last hidden state between chunks"""

    def __init__(self, d):
        super().__init__()
        self.cell = MinGRU(d)
        self.d = d
        self.last = None

    def reset(self, bs):
        self.last = torch.zeros(bs, self.d)

    def forward(self, xs):
        h = self.last
        outs = []
        for x in xs.unbind(1):
            h = self.cell(x, h)
            outs.append(h)
        self.last = h
        return torch.stack(outs, 1)


class StreamLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, H)
        self.mem = StatefulMemory(H)
        self.head = nn.Linear(H, V)

    def forward(self, ids):
        return self.head(self.mem(self.emb(ids)))


def stream():
    pos = torch.randint(0, V, (BS, 1))
    stride = torch.randint(1, 4, (BS, 1))
    while True:
        idx = pos + stride * torch.arange(CHUNK + 1)
        yield idx % V
        pos = (pos + stride * CHUNK) % V


lm = StreamLM()
lm.mem.compile(backend=BACKEND)
opt = torch.optim.Adam(lm.parameters(), lr=5e-3)
src = stream()
lm.mem.reset(BS)
for step in range(25):
    ids = next(src)
    logits = lm(ids[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
    opt.step()
    print(f"chunk {step}: {loss.item():.4f}")
