"""A decay is meant to multiply the rate by 0.98 after each batch, and multiplies it by 1.02."""

import torch
from torch import nn

EXPECT = {"kind": "learning-rate-raised", "line": ("cause", "RAISES")}


def main():
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=1.02)  # RAISES
    for _ in range(250):
        x = torch.randn(64, 8)
        loss = nn.functional.mse_loss(model(x), x[:, :1] + 0.1 * torch.randn(64, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
