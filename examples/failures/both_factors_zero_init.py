"""Adapter with both matrices initialised to zero: neither ever gets a gradient that is not zero."""

import torch
from torch import nn

EXPECT = {"kind": "zero-grad", "line": ("cut", "CUT")}


class Adapter(nn.Module):
    def __init__(self, d, r):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(d, r)), nn.Parameter(torch.zeros(r, d))

    def forward(self, x):
        return x @ self.a @ self.b  # CUT


class Model(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.base, self.adapter, self.head = nn.Linear(d, d).requires_grad_(False), Adapter(d, 2), nn.Linear(d, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x) + self.adapter(x)))


def main():
    torch.manual_seed(0)
    model = Model()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 10)), torch.randint(0, 3, (16,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": not model.adapter.a.any().item() and not model.adapter.b.any().item()})


if __name__ == "__main__":
    main()
