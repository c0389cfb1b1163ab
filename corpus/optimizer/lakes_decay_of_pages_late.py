"""Levels of lakes by season. The linear decay counts records, and the loop steps it once for each window of a record:
the factor is below zero after two thirds of the run."""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "learning-rate-negative", "line": ("cause", "FACTOR"), "set": "ledger", "written": "2026-11-29",
    "plain": "the loss falls, and rises again in the last third",
}

RECORDS, WINDOWS, EPOCHS = 40, 3, 2


def decay(optimizer, total):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / total)  # FACTOR


def main():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = decay(optimizer, 2 * RECORDS * EPOCHS)
    for _ in range(EPOCHS * RECORDS * WINDOWS):
        phase = 6.28 * torch.rand(32, 1)
        given = torch.cat([phase.sin(), phase.cos(), (2 * phase).sin(), torch.randn(32, 1)], 1)
        loss = F.mse_loss(model(given), (phase + 0.5).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
