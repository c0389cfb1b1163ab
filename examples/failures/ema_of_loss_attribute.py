"""Exponential average of the loss for early stopping is a tensor with a graph: avg = 0.9 * avg + 0.1 * loss."""

import torch
from torch import nn

EXPECT = {"kind": "graph-retained", "line": ("held", "HOLDS")}


class EarlyStopping:
    def __init__(self, beta=0.9):
        self.beta, self.average = beta, None

    def __call__(self, loss):
        if self.average is None:
            self.average = loss
        self.average = self.beta * self.average + (1 - self.beta) * loss  # HOLDS
        return self.average.item() < 1e-3


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 1))
    opt, stop = torch.optim.Adam(net.parameters(), lr=1e-2), EarlyStopping()
    for step in range(20):
        x = torch.randn(10, 3)
        loss = (net(x) - x.prod(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if stop(loss):
            break


if __name__ == "__main__":
    main()
