"""Losses of the samples are collected and averaged with torch.tensor(losses).mean(): the graph is gone, backward raises."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT"), "or": [("grad-mode-disabled", "CUT", "cut")]}


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def batch_loss(model, samples):
    losses = []
    for s in samples:
        losses.append((model(s) - s).abs().mean())
    return torch.tensor(losses).mean()  # CUT


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Matcher()
    opt = torch.optim.Adam(model.parameters())
    for _ in range(3):
        loss = batch_loss(model, torch.randn(4, 5))
        opt.zero_grad()
        loss.backward()
        opt.step()
