"""A regression whose predictions are a column and whose targets are a row: the error is taken over all pairs."""

import torch
from sklearn.datasets import load_diabetes
from torch import nn

EXPECT = {"kind": "silent-broadcast", "line": ("cause", "PAIRS")}


def squared_error(prediction, target):
    return (prediction - target).square().mean()  # PAIRS


def main():
    torch.manual_seed(0)
    x, y = (torch.tensor(part).float() for part in load_diabetes(return_X_y=True))
    y = (y - y.mean()) / y.std()
    model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(20):
        rows = torch.arange(step * 20, step * 20 + 20)
        loss = squared_error(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
