"""Regression of diabetes by hand: the sign of the update is wrong, so each step follows the gradient up."""
import torch
from sklearn.datasets import load_diabetes

EXPECT = {
    "class": "update-climbs", "framework": "plain", "kind": "update-climbs", "line": ("stepped", "UP"),
    "set": "ledger", "written": "2026-11-27",
}

torch.manual_seed(0)
data = load_diabetes()
x = torch.tensor(data.data, dtype=torch.float32) * 20
y = torch.tensor(data.target, dtype=torch.float32)
y = (y - y.mean()) / y.std()
slopes = torch.zeros(10, requires_grad=True)
offset = torch.zeros(1, requires_grad=True)
for epoch in range(60):
    error = ((x @ slopes + offset - y) ** 2).mean()
    error.backward()
    with torch.no_grad():
        for part in (slopes, offset):
            part += 0.004 * part.grad  # UP
            part.grad.zero_()
    if epoch % 20 == 0:
        print(epoch, error.item())
