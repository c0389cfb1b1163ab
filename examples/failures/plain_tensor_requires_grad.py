"""Learned temperature is a plain tensor with requires_grad=True instead of nn.Parameter."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "unregistered-parameter", "line": ("cut", "CUT"), "module": ""}


class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 8))
        self.temperature = torch.ones(1, requires_grad=True)  # CUT

    def forward(self, a, b):
        za, zb = F.normalize(self.encoder(a), dim=1), F.normalize(self.encoder(b), dim=1)
        return za @ zb.t() / self.temperature


def main():
    torch.manual_seed(0)
    model = SimCLR()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(8, 12)
        logits = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
        loss = F.cross_entropy(logits, torch.arange(8))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": model.temperature.item() == 1.0 and model.temperature.grad is not None})


if __name__ == "__main__":
    main()
