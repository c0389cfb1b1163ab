"""A monitor runs a model on other data without gradients, but in training mode: running statistics follow that data."""

import torch
from torch import nn

EXPECT = {"kind": "statistics-of-other-data", "line": ("cause", "CAUSE")}


def monitor(model, batches):
    with torch.no_grad():
        return sum(model(x).mean().item() for x in batches)  # CAUSE


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    other = 3 * torch.randn(8, 32, 6) + 4
    for step in range(60):
        x = torch.randn(32, 6)
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            monitor(model, other)


if __name__ == "__main__":
    main()
