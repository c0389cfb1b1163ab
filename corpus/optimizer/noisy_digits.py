"""Trains an MLP on noisy digit labels and wants to return the weights with the best validation loss; what it returns are the last, overfitted weights.

Report: https://github.com/pytorch/tutorials/pull/188 (state_dict() must be deep-copied, otherwise best_model_wts changes always to the last epoch's state)

Effect: the validation loss after loading the "best" weights is not the best loss that was printed but that of the last epoch.
"""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "plain", "kind": "state-not-copied", "line": ("cause", "CAUSE"),
    "what": "best_model_wts is only a reference to the live parameters, so every later optimizer step overwrites it; keep copy.deepcopy(model.state_dict()).",
    "set": "eighteenth", "written": "2026-11-27",
}


def get_loaders(seed=0):
    rng = np.random.default_rng(seed)
    d = load_digits()
    perm = rng.permutation(len(d.data))
    x = torch.tensor(d.data[perm] / 16.0, dtype=torch.float32)
    y = torch.tensor(d.target[perm])
    noisy = y.clone()
    flip = torch.tensor(rng.random(len(y)) < 0.3)
    noisy[flip] = torch.tensor(rng.integers(0, 10, int(flip.sum())))
    train = DataLoader(TensorDataset(x[:960], noisy[:960]), batch_size=16, shuffle=True)
    val = DataLoader(TensorDataset(x[960:], y[960:]), batch_size=500)
    return {"train": train, "val": val}


def val_loss(model, loader, criterion):
    model.eval()
    total, n = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += criterion(model(x), y).item() * len(y)
            n += len(y)
    return total / n


def train_model(model, loaders, criterion, optimizer, num_epochs=6):
    best_loss = float("inf")
    best_model_wts = None
    for epoch in range(num_epochs):
        model.train()
        for x, y in loaders["train"]:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        current = val_loss(model, loaders["val"], criterion)
        print(f"epoch {epoch} train {loss.item():.3f} val {current:.4f}")
        if current < best_loss:
            best_loss = current
            best_model_wts = model.state_dict()  # CAUSE
    model.load_state_dict(best_model_wts)
    print(f"best val loss seen {best_loss:.4f}")
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    loaders = get_loaders()
    crit = nn.CrossEntropyLoss()
    net = train_model(net, loaders, crit, torch.optim.Adam(net.parameters(), lr=2e-3))
    print(f"val loss of the returned model {val_loss(net, loaders['val'], crit):.4f}")
