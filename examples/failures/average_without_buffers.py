"""An average of the weights is evaluated, but nobody copies the running statistics of its BatchNorm."""

import copy

import torch
from torch import nn

EXPECT = {"kind": "buffers-left-behind", "line": ("cause", "CAUSE")}


class Average:
    def __init__(self, model, decay=0.9):
        self.copy, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for mine, new in zip(self.copy.parameters(), model.parameters(), strict=True):  # CAUSE
            mine.mul_(self.decay).add_(new, alpha=1 - self.decay)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    average = Average(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        x = 3 + 2 * torch.randn(64, 6)
        loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
    with torch.no_grad():
        print((average.copy(x).squeeze(1) - x.sum(1)).square().mean().item())


if __name__ == "__main__":
    main()
