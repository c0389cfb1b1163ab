"""Iris with an update by hand: the loop assigns a new tensor to its variable, and the model never changes."""
import torch
from sklearn.datasets import load_iris
from torch import nn

EXPECT = {
    "class": "gradient-not-used", "framework": "plain", "kind": "gradient-not-used", "line": ("stepped", "LOST"),
    "set": "ledger", "written": "2026-11-27",
}


def update(model, rate):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight = weight - rate * weight.grad  # LOST


torch.manual_seed(0)
iris = load_iris()
x, y = torch.tensor(iris.data, dtype=torch.float32), torch.tensor(iris.target)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
for epoch in range(12):
    for pick in torch.randperm(150).split(30):
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
        loss.backward()
        update(model, 0.05)
    print(epoch, loss.item())
