"""A schedule divides with //, and the rate falls to zero right after the warm-up."""

import torch
from torch import nn

EXPECT = {"kind": "learning-rate-zero", "line": ("cause", "DECAYS")}
WARMUP, STEPS = 10, 60


def factor(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return (STEPS - step) // (STEPS - WARMUP)  # DECAYS


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for _ in range(STEPS):
        x = torch.randn(32, 12)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
