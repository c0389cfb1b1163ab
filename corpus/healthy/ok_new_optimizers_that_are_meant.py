"""Healthy: new optimizers for good reasons. The state is handed on after each epoch; each picture has its own pixels; folds and layers that thaw get their own; L-BFGS solves each time step; plain SGD has no state."""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)


def network():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def learn(model, optimizer, steps):
    for _ in range(steps):
        pick = torch.randint(0, len(x), (48,))
        loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


model, state = network(), None
for epoch in range(12):  # a new optimizer, which gets the old one's state
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    if state is not None:
        optimizer.load_state_dict(state)
    last = learn(model, optimizer, 6)
    state = optimizer.state_dict()
print("handed on", last)

for fold in range(10):  # a new model for each fold
    fresh = network()
    last = learn(fresh, torch.optim.AdamW(fresh.parameters(), lr=3e-3), 5)
print("folds", last)

for first in (2, 0):  # layers thaw
    thawed = [p for layer in list(model)[first:] for p in layer.parameters()]
    last = learn(model, torch.optim.Adam(thawed, lr=1e-3), 8)
print("thawed", last)

for step in range(20):  # no state to lose
    last = learn(model, torch.optim.SGD(model.parameters(), lr=0.05), 2)
print("plain", last)

for p in model.parameters():
    p.requires_grad_(False)
for digit in range(10):  # pixels of its own for each picture
    picture = torch.full((1, 64), 0.5, requires_grad=True)
    painter = torch.optim.Adam([picture], lr=0.05)
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(picture), torch.tensor([digit]))
        painter.zero_grad()
        loss.backward()
        painter.step()
print("painted", loss.item())

field = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))
grid = torch.linspace(0, 1, 24)[:, None]
heat = torch.sin(3.14159 * grid)
for hour in range(10):  # an implicit scheme: each time step is a problem of its own
    heat = 0.9 * heat
    solver = torch.optim.LBFGS(field.parameters(), max_iter=8, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        error = (field(grid) - heat).square().mean()
        error.backward()
        return error

    error = solver.step(closure)
print("solved", error.item())
