"""A loader fills one preallocated numpy buffer; two micro-batches share it and one backward runs for both losses."""

import numpy as np
import torch
from torch import nn

EXPECT = {"kind": "silent-mutation", "line": ("mutated", "MUTATES")}


class Loader:
    def __init__(self, n, width, seed=0):
        self.rng = np.random.default_rng(seed)
        self.buffer = np.empty((n, width), dtype=np.float32)

    def next(self):
        np.copyto(self.buffer, self.rng.standard_normal(self.buffer.shape))  # MUTATES
        return torch.from_numpy(self.buffer)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(5, 7), nn.Linear(7, 1)

    def forward(self, x):
        return self.outer(self.inner(x).relu())  # SAVES


if __name__ == "__main__":
    torch.manual_seed(0)
    net, loader = Net(), Loader(8, 5)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(3):
        total = 0
        for micro in range(2):
            x = loader.next()
            total = total + net(x).square().mean() / 2
        opt.zero_grad()
        total.backward()
        opt.step()
    print("done")
