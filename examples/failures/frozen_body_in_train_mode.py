"""A body that was trained on one kind of data is frozen, and train mode moves its running statistics to another kind."""

import torch
from torch import nn

EXPECT = {"kind": "frozen-buffer-changes", "line": ("cause", "CAUSE")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


def fit(model, parameters, offset, steps):
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    model.train()  # CAUSE
    for _ in range(steps):
        x = offset + torch.randn(32, 6)
        loss = (model(x) - x.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    model = Net()
    fit(model, model.parameters(), 0.0, 30)
    model.body.requires_grad_(False)
    model.head = nn.Linear(16, 1)
    fit(model, model.head.parameters(), 5.0, 60)


if __name__ == "__main__":
    main()
