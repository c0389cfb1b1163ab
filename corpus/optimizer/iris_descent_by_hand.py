"""Iris with an update by hand: .grad is never cleared, so every update uses all gradients since the start."""
import torch
from sklearn.datasets import load_iris
from torch import nn

EXPECT = {
    "class": "gradient-not-cleared", "framework": "plain", "kind": "gradient-not-cleared", "line": ("backward", "ADDS"),
    "set": "ledger", "written": "2026-11-27",
}

torch.manual_seed(0)
iris = load_iris()
x, y = torch.tensor(iris.data, dtype=torch.float32), torch.tensor(iris.target)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
for epoch in range(12):
    for pick in torch.randperm(150).split(30):
        loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
        loss.backward()  # ADDS
        for p in model.parameters():
            p.data -= 0.02 * p.grad
    print(epoch, loss.item())
