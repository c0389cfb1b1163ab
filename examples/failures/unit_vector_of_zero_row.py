"""Unit vectors by hand, x / (norm + 1e-12): a padding row of zeros gets a gradient of 1e12; clipping hides it."""

import torch
from torch import nn

EXPECT = {"kind": "exploding-gradient", "line": ("cause", "CULPRIT")}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 8)
        with torch.no_grad():
            self.emb.weight[7] = 0.0

    def forward(self, ids):
        v = self.emb(ids)
        n = v.norm(dim=-1, keepdim=True)
        return v / (n + 1e-12)  # CULPRIT


torch.manual_seed(0)
a, b = Encoder(), nn.Linear(8, 8)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], 0.1)
for step in range(60):
    ids = torch.randint(8, 30, (6,))
    if step == 40:
        ids[0] = 7
    loss = nn.functional.cross_entropy(b(a(ids)) @ a(ids).t(), torch.arange(6))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([*a.parameters(), *b.parameters()], 1.0)
    opt.step()
