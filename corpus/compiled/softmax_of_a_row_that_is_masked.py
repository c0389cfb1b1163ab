"""A sample whose tokens are all padding: each score is filled with minus infinity."""

import os

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "attend",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Attend(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, keep):
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        scores = scores.masked_fill(~keep[:, None, :], float("-inf"))
        weights = scores.softmax(-1)  # HERE
        return weights @ self.v(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attend, self.out = nn.Linear(3, 8), Attend(8), nn.Linear(8, 2)

    def forward(self, x, keep):
        return self.out(self.attend(self.embed(x), keep).mean(1))


torch.manual_seed(2)
model = Encoder()
model = torch.compile(model, backend=BACKEND)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(12):
    x, keep = torch.randn(4, 5, 3), torch.rand(4, 5) > 0.3
    keep[:, 0] = True
    if step == 7:
        keep[2] = False
    loss = F.cross_entropy(model(x, keep), torch.tensor([0, 1, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
