"""A linear decay is made for the first epochs, and training goes on: the rate becomes negative."""

import torch
from torch import nn

EXPECT = {"kind": "learning-rate-negative", "line": ("cause", "DECAYS")}


def factor(step):
    if step < 4:
        return (step + 1) / 4
    return 1 - step / 40  # DECAYS


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for _ in range(60):
        x = torch.randn(32, 6)
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
