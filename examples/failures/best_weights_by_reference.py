"""Early stopping that keeps the best weights: state_dict() returns the weights themselves, and training goes on."""

import torch
from torch import nn

EXPECT = {"kind": "state-not-copied", "line": ("cause", "KEPT")}


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.waited, self.lowest, self.best = patience, 0, float("inf"), None

    def update(self, loss, model):
        if loss < self.lowest:
            self.lowest, self.waited = loss, 0
            self.best = model.state_dict()  # KEPT
        else:
            self.waited += 1
        return self.waited >= self.patience


torch.manual_seed(0)
x = torch.randn(48, 16)
y = (x[:, 0] + 0.5 * torch.randn(48) > 0).long()
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
stopping = EarlyStopping(patience=5)

for epoch in range(60):
    for batch in torch.randperm(32).split(8):
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        held_out = nn.functional.cross_entropy(model(x[32:]), y[32:]).item()
    if stopping.update(held_out, model):
        break
model.load_state_dict(stopping.best)
