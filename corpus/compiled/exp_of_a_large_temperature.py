"""The learned temperature is exponentiated, and one batch pushes it beyond what floats hold."""

import os

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(5, 4), nn.Linear(5, 4)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b, boost):
        scale = torch.exp(self.log_scale + boost)  # HERE
        logits = scale * F.normalize(self.left(a), dim=-1) @ F.normalize(self.right(b), dim=-1).T
        return F.cross_entropy(logits, torch.arange(len(a)))


torch.manual_seed(5)
model = Contrast()
compiled = torch.compile(model, backend=BACKEND)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    a = torch.randn(6, 5)
    boost = torch.tensor(90.0 if step == 5 else 0.0)
    loss = compiled(a, a + 0.1 * torch.randn(6, 5), boost)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
