"""total_loss is initialised outside the loop and backward is called on it in every iteration."""

import torch
from torch import nn

EXPECT = {"kind": "second-backward", "line": ("reused", "REUSED")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x)


def train_epoch(model, loader, opt):
    total_loss = 0
    for x, y in loader:
        pred = model(x)
        total_loss += nn.functional.mse_loss(pred, y)  # REUSED
        opt.zero_grad()
        total_loss.backward()  # FREED
        opt.step()
    return total_loss / len(loader)


torch.manual_seed(0)
model = Net()
train_epoch(model, [(torch.randn(4, 4), torch.randn(4, 1)) for _ in range(3)], torch.optim.SGD(model.parameters(), 0.1))
