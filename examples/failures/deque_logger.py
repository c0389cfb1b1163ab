"""Smoothed meter keeps the last 50 loss tensors in a deque."""

from collections import deque

import torch
from torch import nn

EXPECT = {"kind": "graph-retained", "line": ("held", "HOLDS")}


class SmoothedValue:
    def __init__(self, window=50):
        self.values = deque(maxlen=window)

    def update(self, value):
        self.values.append(value)  # HOLDS

    @property
    def median(self):
        return torch.stack(list(self.values)).median().item()


def train_one_epoch(model, opt, steps=15):
    meters = {"loss": SmoothedValue(), "acc": SmoothedValue()}
    for _ in range(steps):
        x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        meters["loss"].update(loss)
        meters["acc"].update((logits.argmax(1) == y).float().mean())
    return meters["loss"].median


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    print(train_one_epoch(net, torch.optim.SGD(net.parameters(), 0.1)))
