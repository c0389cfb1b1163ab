"""Diabetes: after a warm-up of 600 steps, every 80 steps a smooth copy of the weights is tried on held-out patients by assigning its tensors to the model. The model keeps them."""
import torch
from sklearn.datasets import load_diabetes
from torch import nn

EXPECT = {
    "class": "weights-put-back", "framework": "plain", "kind": "weights-put-back", "line": ("mutated", "ASSIGNED"),
    "set": "ledger", "written": "2026-11-27",
}

WARM_UP, EVERY = 600, 80


def smooth(shadow, net, keep=0.985):
    with torch.no_grad():
        for old, new in zip(shadow, net.parameters()):
            old.mul_(keep).add_(new, alpha=1 - keep)


def try_out(net, shadow, x, y):
    for p, value in zip(net.parameters(), shadow):
        p.data = value.clone()  # ASSIGNED
    with torch.no_grad():
        return (net(x)[:, 0] - y).abs().mean().item()


torch.manual_seed(0)
table = load_diabetes()
x, y = torch.tensor(table.data, dtype=torch.float32) * 20, torch.tensor(table.target, dtype=torch.float32)
y = (y - y.mean()) / y.std()
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
shadow = None
for step in range(1, 1001):
    pick = torch.randint(0, 350, (32,))
    loss = (net(x[pick])[:, 0] - y[pick]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == WARM_UP:
        shadow = [p.detach().clone() for p in net.parameters()]
    if shadow is not None:
        smooth(shadow, net)
        if step % EVERY == 0:
            print(step, loss.item(), try_out(net, shadow, x[350:], y[350:]))
