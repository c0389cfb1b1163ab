"""A classifier whose weight penalty is read with item(): the loss contains it, the gradients do not."""

import torch
from sklearn.datasets import load_wine
from torch import nn

EXPECT = {"kind": "loss-term-without-graph", "line": ("cut", "READS")}


def penalty_of(model):
    total = 0.0
    for parameter in model.parameters():
        total += parameter.square().sum().item()  # READS
    return total


def main():
    torch.manual_seed(0)
    x, y = (torch.tensor(part) for part in load_wine(return_X_y=True))
    x = ((x - x.mean(0)) / x.std(0)).float()
    model = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        penalty = penalty_of(model)
        loss = nn.functional.cross_entropy(model(x), y) + 0.01 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
