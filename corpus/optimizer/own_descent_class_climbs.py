"""A class of one's own for gradient descent: it writes to .data with the wrong sign."""
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

EXPECT = {
    "class": "update-climbs", "framework": "plain", "kind": "update-climbs", "line": ("stepped", "UP"),
    "set": "ledger", "written": "2026-11-27",
}


class Descent:
    def __init__(self, parameters, rate):
        self.parameters, self.rate = list(parameters), rate

    def step(self):
        for p in self.parameters:
            p.data = p.data + self.rate * p.grad  # UP

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


torch.manual_seed(0)
cells = load_breast_cancer()
x = torch.tensor(cells.data, dtype=torch.float32)
x, y = (x - x.mean(0)) / x.std(0), torch.tensor(cells.target, dtype=torch.float32)
net = nn.Sequential(nn.Linear(30, 24), nn.ReLU(), nn.Linear(24, 1))
descent = Descent(net.parameters(), 0.02)
for step in range(90):
    pick = torch.randint(0, len(x), (64,))
    loss = nn.functional.binary_cross_entropy_with_logits(net(x[pick])[:, 0], y[pick])
    descent.zero_grad()
    loss.backward()
    descent.step()
    if step % 30 == 0:
        print(step, loss.item())
