"""torch.add(..., out=buffer) reuses one workspace for every layer."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES"), "module": "mix.1"}


class FourierFeatures(nn.Module):
    def __init__(self, bands=3, width=5):
        super().__init__()
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(bands))
        self.bands = bands
        self.register_buffer("work", torch.zeros(0), persistent=False)

    def forward(self, x):
        if self.work.shape != x.shape:
            self.work = torch.zeros_like(x)
        total = 0
        for i in range(self.bands):
            torch.mul(x, 2.0**i, out=self.work)  # MUTATES
            total = total + self.mix[i](self.work)  # SAVES
        return total


if __name__ == "__main__":
    torch.manual_seed(0)
    net = FourierFeatures()
    net(torch.randn(4, 5)).square().mean().backward()
