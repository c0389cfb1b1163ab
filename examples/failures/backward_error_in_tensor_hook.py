"""Gradient reversal by tensor hook that returns a tensor of another shape."""

import torch
from torch import nn

EXPECT = {"kind": "backward-error", "line": ("cause", "CULPRIT")}


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature, self.label, self.domain = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x):
        f = torch.relu(self.feature(x))
        r = f * 1.0  # CULPRIT
        r.register_hook(lambda g: -g.mean(0))
        return self.label(f), self.domain(r)


if __name__ == "__main__":
    torch.manual_seed(0)
    net = DANN()
    y, d = net(torch.randn(5, 6))
    loss = nn.functional.cross_entropy(y, torch.zeros(5, dtype=torch.long)) + nn.functional.cross_entropy(
        d, torch.ones(5, dtype=torch.long)
    )
    loss.backward()  # FAILS
