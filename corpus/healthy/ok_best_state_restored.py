"""Healthy: the best weights are copied and put back on a plateau, with the optimizer's state; the newest state is also kept by reference, to be written to a file, and a second network is synchronised with the first."""
import copy
import io

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
slow = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
best, lowest, waited = None, float("inf"), 0
for epoch in range(14):
    model.train()
    for pick in torch.randperm(600).split(60):
        loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    slow.load_state_dict(model.state_dict())
    slow.eval()
    with torch.no_grad():
        value = nn.functional.cross_entropy(slow(x[600:]), y[600:]).item()
    newest = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    file = io.BytesIO()
    torch.save(newest, file)
    if value < lowest:
        best, lowest, waited = copy.deepcopy(newest), value, 0
    else:
        waited += 1
    if waited == 2:
        model.load_state_dict(best["model"])
        optimizer.load_state_dict(best["optimizer"])
        waited = 0
    print(epoch, loss.item(), value)
file.seek(0)
model.load_state_dict(torch.load(file)["model"])
model.load_state_dict(best["model"])
