"""Layers with a flag of their own named requires_grad, which their code obeys: the flagged one is really frozen."""
import torch
from torch import nn

EXPECT = {"class": "freeze-without-effect", "framework": "plain", "kind": None, "set": "ledger", "written": "2026-11-27"}


class Slice(nn.Module):
    def __init__(self, size, requires_grad=True):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.requires_grad = requires_grad
        if not requires_grad:
            for p in self.parameters():
                p.requires_grad = False

    def forward(self, x):
        return torch.relu(self.linear(x))


torch.manual_seed(0)
features = Slice(8, requires_grad=False)
trunk = nn.Sequential(features, Slice(8), nn.Linear(8, 1))
optimizer = torch.optim.Adam([p for p in trunk.parameters() if p.requires_grad], lr=1e-2)
for step in range(60):
    x = torch.randn(32, 8)
    loss = (trunk(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
