"""Convnet with a held-out probe batch scored every step once the model has settled."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-retained", "kind": "graph-retained", "holding_marker": "CULPRIT", "step": 100,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(12)
d = load_digits()
IMG = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16.0
LAB = torch.tensor(d.target)
train_x, train_y = IMG[:1500], LAB[:1500]
probe_x, probe_y = IMG[1500:1548], LAB[1500:1548]

net = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
    nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(48, 96, 3, padding=1), nn.ReLU(), nn.Flatten(),
    nn.Linear(96 * 16, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
history = {"train": [], "probe": []}


def train_step(i):
    net.train()
    x, y = train_x[i], train_y[i]
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    history["train"].append(loss.item())


def probe_step():
    net.eval()
    loss = F.cross_entropy(net(probe_x), probe_y)
    history["probe"].append(loss)  # CULPRIT


def smoothed(key, k=20):
    tail = history[key][-k:]
    return float(sum(tail)) / max(len(tail), 1)


start = time.time()
for step in range(400):
    train_step(torch.randint(0, len(train_x), (144,)))
    if step >= 100:
        probe_step()
    if step % 50 == 49:
        print(f"{step} train {smoothed('train'):.4f} probe {smoothed('probe'):.4f} "
              f"{(time.time() - start) / (step + 1) * 1e3:.1f} ms/step")
