"""Healthy: residual blocks with gates that start at zero, one more of which is released every forty steps; a gate that is closed gives its block gradients of zero for one step only.

Report it resembles: https://github.com/Guitaricet/relora/issues/18 (matrices of zero whose gradients are products with each other; here only one of the two factors is zero)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "seventh", "written": "2026-11-22"}


class GatedResidual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + self.gate * self.f(x)


class Net(nn.Module):
    def __init__(self, dim=24, depth=3):
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(64, dim), nn.ModuleList([GatedResidual(dim) for _ in range(depth)]), nn.Linear(dim, 10)
        self.active = 1

    def forward(self, x):
        h = torch.relu(self.embed(x))
        for block in self.blocks[: self.active]:
            h = block(h)
        return self.head(h)


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(200):
    net.active = min(1 + step // 40, len(net.blocks))
    pick = torch.randint(0, len(images), (32,))
    loss = nn.functional.cross_entropy(net(images[pick]), labels[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), [round(b.gate.item(), 3) for b in net.blocks])
