"""Linear regression on unscaled prices with lr=0.1: the weights double every step until they overflow."""

import argparse

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    area = torch.rand(64, 1) * 100
    price = 3 * area + 10
    model = nn.Linear(1, 1)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        pred = model(area)  # CULPRIT
        loss = ((pred - price) ** 2).mean()  # CULPRIT
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": not loss.isfinite().item()})


if __name__ == "__main__":
    main()
