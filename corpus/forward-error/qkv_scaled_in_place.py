"""Attention that scales the queries in place, which are one of three chunks of a projection; the option is switched on
after 150 steps.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "refused", "kind": "forward-error", "line": ["cause", "REFUSED"], "step": 150, "set": "ledger",
    "written": "2026-11-27",
}


class Attention(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.qkv, self.out, self.temperature = nn.Linear(size, 3 * size), nn.Linear(size, 1), None

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.temperature is not None:
            q *= self.temperature  # REFUSED
        return self.out(F.scaled_dot_product_attention(q, k, v)).mean(1)


torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(400):
    if step == 150:
        model.temperature = 0.7
    x = torch.randn(8, 5, 16)
    loss = (model(x) - x.mean((1, 2))[:, None]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
