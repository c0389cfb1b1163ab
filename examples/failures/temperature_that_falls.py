"""A schedule lowers the temperature of the attention without end: each token looks at itself alone."""

import torch
from torch import nn

EXPECT = {"kind": "attention-collapse", "line": ("optimizer", "OPTIMIZER"), "module": "Attention", "ask": "levels"}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.value, self.head = nn.Linear(16, 16, bias=False), nn.Linear(16, 16), nn.Linear(16, 16)
        nn.init.eye_(self.near.weight)

    def forward(self, x, temperature):
        q = self.near(x)
        scores = q @ q.transpose(1, 2) / temperature
        return self.head(scores.softmax(-1) @ self.value(x))


torch.manual_seed(0)
model, codes = Attention(), 4 * torch.eye(16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # OPTIMIZER

for step in range(150):
    x = codes[torch.stack([torch.randperm(16)[:8] for _ in range(16)])]
    y = x.mean(1, keepdim=True) + torch.randn_like(x)
    loss = nn.functional.mse_loss(model(x, 16 * 0.97 ** min(step, 100)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
