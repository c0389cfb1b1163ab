"""Batches with a NaN loss are skipped, but BatchNorm has taken the NaN into its running statistics by then."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-buffer", "line": ("cause", "CAUSE"), "module": "1"}


def batch(step):
    x = torch.rand(32, 5)
    if step == 17:
        x[4] = 0  # a reading that was never taken
    return x / x.sum(1, keepdim=True)  # CAUSE


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(40):
        x = batch(step)
        loss = (model(x).squeeze(1) - x.std(1)).square().mean()
        if torch.isnan(loss):
            print("skipped")
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
